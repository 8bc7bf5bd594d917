"""From the bytes of keys and values to typed columns. Nothing here needs Spark."""

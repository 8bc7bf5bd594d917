"""Where a log is read from and written to: the files of a directory, or a broker. Nothing here needs Spark."""

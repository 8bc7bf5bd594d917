"""What `df.write` and `df.writeStream` do: rows become packed batches, appended once."""

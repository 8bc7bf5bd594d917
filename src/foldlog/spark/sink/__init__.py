"""`df.write` and `df.writeStream`: rows become packed batches, appended once."""

"""The loops over batches in plain Python: the oracle of the compiled ones, and their fallback."""

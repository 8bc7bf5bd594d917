"""The loops over batches in plain Python: the oracle of the compiled ones, and their stand-in where there are none."""

"""A package, and not only a folder: what its tests share ends with them, and not with the whole run."""

"""`foldlog copy`: topics, groups and folds from one log to another."""

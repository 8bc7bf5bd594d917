"""Folds: how they are declared, what they read, and the runner that moves them. `foldlog.spark` has what users need."""

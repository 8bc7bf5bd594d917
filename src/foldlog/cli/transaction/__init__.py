"""`foldlog transaction`."""

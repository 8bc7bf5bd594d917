"""`foldlog capture`."""

"""`foldlog topic`: topics, their records, their tables."""

"""`foldlog check` and `foldlog dump`: a log's files as they are."""

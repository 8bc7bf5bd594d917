"""`foldlog bench`: what this machine can do."""

"""`foldlog bench`: measures this machine."""

"""`foldlog user`, `foldlog acl` and `foldlog quota`: who may log in, do what, and use how much."""

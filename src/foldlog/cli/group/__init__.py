"""`foldlog group`: the positions of groups, and moving them."""

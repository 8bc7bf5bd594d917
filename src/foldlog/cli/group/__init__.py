"""`foldlog group`: how far groups have read, and moving them."""

"""Groups: the coordinator without I/O, and what is committed."""

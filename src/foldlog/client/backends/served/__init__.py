"""A log whose directory another process serves: read from its files, written through its socket."""

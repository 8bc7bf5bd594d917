"""`foldlog node`: a log as JSON lines on standard input and output."""

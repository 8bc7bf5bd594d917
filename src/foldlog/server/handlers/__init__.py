"""One module for each API, named like its messages; `foldlog.server.call` imports one at its first request."""

"""One module for each API, named as its messages are; `foldlog.server.call` loads one at its first request."""

"""One module for each API, named as its messages are; `foldlog.server.dispatch` loads one at its first request."""

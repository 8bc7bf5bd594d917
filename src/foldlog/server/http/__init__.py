"""The HTTP server of the console, `/metrics` and `/healthz`."""

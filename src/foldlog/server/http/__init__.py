"""The HTTP that the console, `/metrics` and `/healthz` share."""

"""Types of `reads.pyx`, for the checker: other compiled modules use it, Python nothing of it."""

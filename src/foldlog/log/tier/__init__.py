"""Sealed segments in an object store: what is copied there, read from there, and removed there."""

"""Consumers: what they promise, how they read a directory, and their places in groups."""

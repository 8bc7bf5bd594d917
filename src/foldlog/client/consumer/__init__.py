"""Consumers: their interface, how they read a directory, and their membership in groups."""

"""Fetches: what is wanted, what is read, and the answer; compiled where that is possible."""

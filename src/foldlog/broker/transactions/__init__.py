"""Transactions: the coordinator's decisions, their records, and what carries them out."""

"""Metrics that clients push to the broker (KIP-714): what is asked of whom, and what came."""

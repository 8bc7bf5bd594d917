"""Metrics, and their exposition for Prometheus."""

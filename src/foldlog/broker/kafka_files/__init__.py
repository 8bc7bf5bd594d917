"""Directories that Apache Kafka wrote: read, never written."""

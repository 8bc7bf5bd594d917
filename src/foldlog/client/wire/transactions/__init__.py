"""Transactions over the wire: what is asked of coordinators, and packed batches that are sent in one."""

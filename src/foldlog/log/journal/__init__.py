"""One journal for all partitions: its bytes, the open ring, and what an open after a crash does with it."""

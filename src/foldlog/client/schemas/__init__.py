"""Schemas of a registry, as readers use them: found by id, and values decoded with them."""

"""Whether the tests would notice: bugs planted by hand, and mutants made by rule, each met by tests that should fail.

`make mutants` plants the list in plants.toml, one by one, into a copy of the tree. `make mutants ROOM=log` changes
single expressions of a room's code, a sample by a seed, and runs the tests that reach the changed line. What
survives is a missing test, or stands in equivalents.toml with the reason why nothing changed. CONTRIBUTING.md says how
to read it.
"""

"""Histories of what real clients asked and were told, and the rules by which they are judged.

`rules` and `linear` import nothing of the log, and nothing of its tests: they know a history and public definitions.
"""

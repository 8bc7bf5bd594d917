"""State of your own: a keyed state machine whose states are the rows of a table."""

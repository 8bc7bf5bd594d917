"""Share groups (KIP-932): many members take records from the same partitions, each record for a while its taker's."""

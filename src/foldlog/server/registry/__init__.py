"""The schema registry over HTTP, as Confluent's clients know it."""

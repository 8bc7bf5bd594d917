"""What a pipeline for a topic could be, and what a fold will do: `fold init` and `fold explain`."""

"""`foldlog fold`: pipelines, and what they tell while they run."""

"""`foldlog fold`: pipelines, and their progress while they run."""

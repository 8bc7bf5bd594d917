"""How folds lie behind one another: the graph of a pipeline, and drawings of it."""

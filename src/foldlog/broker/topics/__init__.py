"""Topics: the catalog, their settings, names and directories."""

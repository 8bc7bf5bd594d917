"""A package, so that what is shared by its tests ends with them: a browser that drives pages holds an event loop."""

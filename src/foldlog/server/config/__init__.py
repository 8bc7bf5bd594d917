"""The sources of a broker's settings, and changes of settings while it runs."""

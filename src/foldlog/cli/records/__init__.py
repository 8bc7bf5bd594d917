"""Records as the command line reads and prints them."""

"""Sockets: listeners, connections, their memory, and the syncs that they share."""

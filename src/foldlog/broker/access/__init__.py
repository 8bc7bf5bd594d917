"""Who may do what: users, access control lists and quotas, as values; no sockets."""

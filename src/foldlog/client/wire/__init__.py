"""Our own client of the protocol: connections, logins, leaders, retries, ranges of records, produced batches,
group sessions.
"""

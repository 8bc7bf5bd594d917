"""What somebody does in the console: topics, groups, transactions, users and ACLs. Each says first what it will do."""

"""PostgreSQL: logical replication, with the output plugin pgoutput that every server has."""

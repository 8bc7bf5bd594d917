"""MySQL and MariaDB: the binlog in row format, read as a replica reads it."""

"""Where folds land: SQL tables, search indexes, counters and lake tables. No Spark in here."""

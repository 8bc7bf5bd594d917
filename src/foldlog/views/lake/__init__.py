"""Open table formats: Delta, Iceberg and Parquet files."""

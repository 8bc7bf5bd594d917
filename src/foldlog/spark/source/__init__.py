"""The data source `foldlog`: what `spark.read` and `spark.readStream` do."""

"""Apache Kafka and Spark clusters on one machine, from their released parts, for tests and benchmarks."""

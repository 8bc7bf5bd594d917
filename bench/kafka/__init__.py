"""`make bench-kafka`: Apache Kafka and foldlog on the same machine, with the same clients, in turns."""

"""What a log is reached through: this process, another one that serves the directory, or a Kafka cluster."""

"""The Kafka protocol without I/O: frames, messages and the codec that is compiled from their schemas."""

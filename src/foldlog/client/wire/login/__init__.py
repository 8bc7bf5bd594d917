"""Who we are to a Kafka cluster: sasl.py, and the ways to say and to prove it that SASL has."""

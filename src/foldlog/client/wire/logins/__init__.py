"""Logging in at a broker: SASL by name and password, SCRAM, OAUTHBEARER, and how Java writes them down."""

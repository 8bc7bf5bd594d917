"""The broker on sockets: Kafka's protocol over one event loop, in front of the same log that the library opens."""

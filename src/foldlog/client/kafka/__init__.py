"""A log that is a Kafka cluster: the same API as a directory's, over librdkafka. `foldlog.connect` makes one.

To follow a change of a topic: topics.py, and everywhere.py for who has heard of it. Of a group: groups.py. A record on
its way out: producer.py; on its way in: consumer.py, or reading.py for a slice; many at once: tables.py. How librdkafka
is set up, and asked again: handles.py; our own connections beside it: wire.py; what errors are here: faults.py.
"""

"""A log that is a Kafka cluster. `foldlog.connect` makes one.

backend.py answers what a Log asks. A record on its way out: producer.py; on its way in: consumption.py for a member of
a group, direct.py for a consumer without one (cursors.py: what they share), reading.py for a slice; many at once:
tables.py. How librdkafka is set up, and asked again: handles.py; our own connections beside it: wire.py; what errors
are here: faults.py.
"""

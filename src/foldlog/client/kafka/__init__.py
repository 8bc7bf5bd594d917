"""A log that is a Kafka cluster: the same API as a directory's, over librdkafka. `foldlog.connect` makes one.

To follow a change of a topic: topics.py. Of a group: groups.py, and moving.py for members that are asked to leave. A
record on its way out: producer.py; on its way in: consumer.py, or reading.py for a slice. How librdkafka is set up:
handles.py; what its errors are here: faults.py.
"""

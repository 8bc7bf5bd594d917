"""The schema registry without sockets: subjects, versions and ids over the topic `_schemas`, and what schemas mean."""

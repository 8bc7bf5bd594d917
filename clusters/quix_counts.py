"""quix_counts.py BROKER INPUT OUTPUT DIRECTORY: counts the records of each key with Quix Streams, exactly once.

The counts are in a state store with a changelog topic, beneath DIRECTORY. For every record of INPUT, OUTPUT gets its
key, and how many of that key there were, as a text. Runs until it is killed, or its client gives up.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found]  # in a directory of its own: quix.py


def count(_: str, state: Any) -> str:
    number = int(state.get("count", 0)) + 1
    state.set("count", number)
    return str(number)


def main() -> None:
    broker, source, target, directory = sys.argv[1:]
    texts = {"key_deserializer": "str", "value_deserializer": "str", "key_serializer": "str", "value_serializer": "str"}
    app = Application(
        broker_address=broker,
        consumer_group="quix-counts",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_every=50,
        state_dir=directory,
        consumer_poll_timeout=0.1,
        consumer_extra_config={"session.timeout.ms": 3000, "heartbeat.interval.ms": 300},
        # Each start has another transactional id, so what a kill left open ends with its time only.
        producer_extra_config={"transaction.timeout.ms": 5000},
        loglevel="WARNING",
    )
    counted = app.dataframe(app.topic(source, **texts)).apply(count, stateful=True)
    counted.to_topic(app.topic(target, **texts))
    app.run()


main()

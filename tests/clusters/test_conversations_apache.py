"""The same questions to our broker and to Apache Kafka, field by field the same answers, but for what was reviewed.

The conversations are in tests/conversations: every API that our broker advertises, in every version that Kafka has too,
taken and refused. Where an answer differs, the difference stands with its reason in tests/conversations/reviewed.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from clusters.apache_kafka import ApacheKafka

from conversations.all_of_them import CONVERSATIONS
from conversations.coverage import NEVER_REFUSED, NEVER_TAKEN
from conversations.running import Conversation, Outcome, both_have, never, run, unused
from conversations.talk import Side
from foldlog.testing import KafkaBroker
from foldlog.wire.messages import NAMES

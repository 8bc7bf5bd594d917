"""Conversations in requests that end before their time: of every API, in every version."""

from __future__ import annotations

from conversations.messages import KEYS
from conversations.running import conversation
from conversations.talk import Talk


@conversation()
def requests_that_are_cut_off(talk: Talk) -> None:
    """A length that is not there, or nothing: whoever sent it is disconnected."""
    for api in sorted(KEYS):
        first, last = talk.side.versions.get(api, (0, -1))
        for version in range(first, last + 1):
            talk.send_raw(f"{api} {version}", api, version, b"\x01")

"""One command of Kafka's tools at two brokers, ours and Apache Kafka, and whether they answer alike."""

from __future__ import annotations

import re
import subprocess
import time
from typing import Final

from clusters.kafka_tools import ToolDesk
from foldlog.testing import KafkaBroker

LOOKS: Final = frozenset({"--list", "--describe", "--time", "describe", "list"})
"""Words of commands that change nothing."""

SETTLING_S: Final = 60

_TOPIC_ID: Final = re.compile(r"TopicId: \S+")
_CLIENT_NUMBER: Final = re.compile(r"(clientId=[a-z]+-)\d+")
_ELIGIBLE_LEADERS: Final = re.compile(r"\bmin\.insync\.replicas=1,?")
_OTHER_NAMES: Final = re.compile(r", DEFAULT_CONFIG:log\.retention\.hours=168")


class SidesDiffer(AssertionError):
    """The two sides did not answer alike, or ours not as it should. The text has what they said."""


class BothSides:
    """Commands name no broker: --bootstrap-server is put in for each side."""

    def __init__(self, desk: ToolDesk, ours: KafkaBroker, kafka: str) -> None:
        self.broker = ours
        self.kafka = kafka
        self._desk = desk

    def same(self, tool: str, *arguments: object, text: str = "") -> list[str]:
        """Run it at both: the exit codes and all that is said have to be the same. What is said, line by line.

        Kafka's brokers learn of a change a moment after the answer, so who only looks may have to look again.
        """
        ours, theirs = self.ours(tool, *arguments, text=text), self.theirs(tool, *arguments, text=text)
        deadline_s = time.monotonic() + SETTLING_S
        while (ours.returncode, self._told(ours)) != (theirs.returncode, self._told(theirs)):
            if LOOKS.isdisjoint(arguments) or time.monotonic() > deadline_s:
                raise SidesDiffer(_shown(ours, theirs))
            theirs = self.theirs(tool, *arguments)
        return self._told(ours)

    def both_refuse(self, sentence: str, tool: str, *arguments: object) -> None:
        """Run it at both: they end alike, and ours has this sentence where Kafka has its own."""
        ours, theirs = self.ours(tool, *arguments), self.theirs(tool, *arguments)
        if ours.returncode != theirs.returncode or sentence not in ours.stdout + ours.stderr:
            raise SidesDiffer(_shown(ours, theirs))

    def ours(self, tool: str, *arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
        return self._run(self.broker, tool, arguments, text)

    def theirs(self, tool: str, *arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
        return self._run(self.kafka, tool, arguments, text)

    def _run(
        self, address: str, tool: str, arguments: tuple[object, ...], text: str
    ) -> subprocess.CompletedProcess[str]:
        server = ("--bootstrap-server", address)
        words = (*arguments, *server) if tool == "kafka-cluster" else (*server, *arguments)
        return self._desk.run(tool, *words, text=text)

    def _told(self, done: subprocess.CompletedProcess[str]) -> list[str]:
        """What is said, without what two clusters cannot have in common."""
        text = (done.stdout + done.stderr).replace(self.broker, "BROKER").replace(self.kafka, "BROKER")
        text = _TOPIC_ID.sub("TopicId: ID", _CLIENT_NUMBER.sub(r"\1N", text))
        # Kafka writes this into its cluster's settings when eligible leader replicas are on (KIP-966).
        text = _OTHER_NAMES.sub("", _ELIGIBLE_LEADERS.sub("", text))
        return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]


def _shown(ours: subprocess.CompletedProcess[str], theirs: subprocess.CompletedProcess[str]) -> str:
    sides = (("ours", ours), ("Apache Kafka", theirs))
    return "\n".join(
        f"--- {name} ends with {side.returncode}: {' '.join(side.args)}\n{side.stdout}{side.stderr}"
        for name, side in sides
    )

"""Which commands of `__folds` a runner carries out: each one once, however many runners there are. Pure, no I/O.

Pause and resume are for every runner of a fold. A rewind, a rebuild or a verification is done by one runner: a runner
that wants it appends a claim, reads on, and starts once it reads its own claim, unless it first read another runner's
claim of that command, or a newer command. All runners read one partition in one order, so they agree on the first
claim. Each runner's claim has its own key and stays until a newer command supersedes it, so compaction removes none
that still counts. A command runs at most once: if the runner that claimed it dies, the user has to send it again.
"""

from __future__ import annotations

from collections.abc import Iterable

from foldlog.client.fold_bulletin import ONE_RUNNER_VERBS, Claim, Command, Item, Status, key_of
from foldlog.limits import FOLD_COMMANDS_REMEMBERED


class CommandClaims:
    """The commands to some folds, as one runner sees them. Feed it the topic's records in order with `hear`."""

    def __init__(self, runner: str, folds: Iterable[str]) -> None:
        self._runner = runner
        self._folds = frozenset(folds)
        self._newest: dict[str, Command] = {}
        self._heard: dict[str, None] = {}
        self._taken: dict[str, Claim] = {}
        self._claims: dict[bytes, Claim] = {}
        self._sent: dict[str, str] = {}
        self.handled: dict[str, str] = {}
        """For each fold the id of the last command that was carried out, by this runner or another one."""
        self.results: dict[str, str] = {}
        """For each fold the result of that command, as text."""

    def hear(self, items: Iterable[Item]) -> None:
        """Take in the records written since the last call."""
        for item in items:
            if item.fold not in self._folds:
                continue
            if isinstance(item, Command):
                self._hear_command(item)
            elif isinstance(item, Claim):
                self._hear_claim(item)
            else:
                self._hear_status(item)

    def _hear_command(self, command: Command) -> None:
        """Take in a command once, even if its record is written again after a newer command."""
        if command.id and command.id in self._heard:
            return
        self._heard[command.id] = None
        while len(self._heard) > FOLD_COMMANDS_REMEMBERED:
            del self._heard[next(iter(self._heard))]
        self._newest[command.fold] = command
        self._taken.pop(command.fold, None)

    def _hear_claim(self, claim: Claim) -> None:
        self._claims[key_of(claim)] = claim
        command = self._newest.get(claim.fold)
        if command is None or command.id != claim.command or claim.fold in self._taken:
            return
        self._taken[claim.fold] = claim
        if claim.runner != self._runner:
            self._done_by_another(claim.fold, claim.command)

    def _hear_status(self, status: Status) -> None:
        """Another runner, or an earlier one, reports the newest command as done; its claim may be gone by now."""
        command, taken = self._newest.get(status.fold), self._taken.get(status.fold)
        if command is None or command.id != status.last_command or (taken and taken.runner == self._runner):
            return
        if command.verb in ONE_RUNNER_VERBS:
            self._done_by_another(status.fold, command.id)
        if status.result is not None and self.handled.get(status.fold) == command.id:
            self.results[status.fold] = status.result

    def _done_by_another(self, fold: str, command: str) -> None:
        if self.handled.get(fold) != command:
            self.handled[fold] = command
            self.results.pop(fold, None)

    def to_claim(self, now_ms: int) -> list[Claim]:
        """The claims to append before any of these commands is started."""
        return [
            Claim(command.fold, command.id, self._runner, now_ms)
            for command in self._open()
            if command.verb in ONE_RUNNER_VERBS
            and command.fold not in self._taken
            and self._sent.get(command.fold) != command.id
        ]

    def sent(self, claims: Iterable[Claim]) -> None:
        """Remember claims that were appended; `hear` decides later which runner won."""
        self._sent.update({claim.fold: claim.command for claim in claims})

    def superseded(self, claims: Iterable[Claim]) -> list[bytes]:
        """Keys of other runners' claims of older commands to the folds of these claims; they can be deleted."""
        wanted = {claim.fold: claim.command for claim in claims}
        keys = [
            key
            for key, old in self._claims.items()
            if old.runner != self._runner and old.fold in wanted and old.command != wanted[old.fold]
        ]
        for key in keys:
            del self._claims[key]
        return keys

    def due(self) -> list[Command]:
        """The commands that this runner carries out now. They are marked as handled; the caller executes them."""
        found = [command for command in self._open() if command.verb not in ONE_RUNNER_VERBS or self._is_mine(command)]
        for command in found:
            self.handled[command.fold] = command.id
        return found

    def _open(self) -> list[Command]:
        return [command for fold, command in self._newest.items() if self.handled.get(fold) != command.id]

    def _is_mine(self, command: Command) -> bool:
        taken = self._taken.get(command.fold)
        return taken is not None and taken.runner == self._runner

"""Who carries out a command, of any number of runners that read one log: exactly one where it is one's to do.

The topic is a list that all runners read in order, each up to another place, as slow or as quick as it likes. Pure.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldlog.client.fold_bulletin import Claim, Command, Item, Status, key_of
from foldlog.spark.folds.command_claims import CommandClaims


def status(command: str | None, result: str | None) -> Status:
    return Status(
        "mirror", "t", "v", "table", "running", {}, {}, 0, 0, 0, 0.0, 0, 0, "", None, "h:1", 0, command, result
    )


class Runner:
    """A desk and how far it has read of the topic; `done` are the verbs it was given."""

    def __init__(self, name: str, topic: list[Item]) -> None:
        self.commands = CommandClaims(name, ["mirror"])
        self._topic = topic
        self._at = 0
        self.done: list[str] = []

    def read(self) -> None:
        items, self._at = self._topic[self._at :], len(self._topic)
        self.commands.hear(items)

    def claim(self) -> None:
        claims = self.commands.to_claim(0)
        self._topic.extend(claims)
        self.commands.sent(claims)

    def act(self) -> None:
        self.done += [command.verb for command in self.commands.due()]

    def look(self) -> None:
        self.read()
        self.claim()
        self.read()
        self.act()


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["read", "claim", "act"])), max_size=60))
def test_a_command_is_carried_out_by_exactly_one_runner_however_their_steps_mix(steps: list[tuple[str, str]]) -> None:
    topic: list[Item] = [Command.ask("mirror", "rebuild", 1)]
    runners = {name: Runner(name, topic) for name in ("a", "b", "c")}
    for name, step in steps:
        getattr(runners[name], step)()
    for runner in [*runners.values(), *runners.values()]:
        runner.look()
    assert sorted(verb for runner in runners.values() for verb in runner.done) == ["rebuild"]


def test_a_pause_is_for_every_runner_also_for_one_that_starts_later() -> None:
    topic: list[Item] = [Command.ask("mirror", "pause", 1)]
    runners = [Runner(name, topic) for name in ("a", "b")]
    for runner in runners:
        runner.look()
        runner.look()
    topic.append(status(runners[0].commands.handled["mirror"], "paused"))
    later = Runner("c", topic)
    later.look()
    assert [runner.done for runner in (*runners, later)] == [["pause"]] * 3


def test_what_a_runner_before_has_done_is_not_done_again_and_its_result_is_kept() -> None:
    command = Command.ask("mirror", "verify", 1)
    runner = Runner("b", [command, status(command.id, "equal: 9 rows")])
    runner.look()
    assert runner.done == []
    assert (runner.commands.handled, runner.commands.results) == ({"mirror": command.id}, {"mirror": "equal: 9 rows"})


def test_a_claim_whose_runner_died_leaves_the_command_undone_and_the_next_one_is_open() -> None:
    first, second = Command.ask("mirror", "rebuild", 1), Command.ask("mirror", "rebuild", 2)
    topic: list[Item] = [first, Claim("mirror", first.id, "dead", 1)]
    runner = Runner("b", topic)
    runner.look()
    assert runner.done == []
    topic.append(second)
    runner.look()
    assert runner.done == ["rebuild"]


def test_a_claim_of_a_command_that_a_newer_one_replaced_gives_nothing() -> None:
    topic: list[Item] = [Command.ask("mirror", "rebuild", 1)]
    runner = Runner("a", topic)
    runner.read()
    runner.claim()
    topic.append(Command.ask("mirror", "verify", 2))
    runner.look()
    assert runner.done == ["verify"]


def test_claims_of_older_commands_are_removed_by_who_claims_a_newer_one() -> None:
    first, second = Command.ask("mirror", "rebuild", 1), Command.ask("mirror", "verify", 2)
    old = Claim("mirror", first.id, "dead", 1)
    runner = Runner("b", [first, old, second])
    runner.read()
    claims = runner.commands.to_claim(0)
    assert [claim.command for claim in claims] == [second.id]
    assert runner.commands.superseded(claims) == [key_of(old)]
    assert runner.commands.superseded(claims) == []


def test_commands_to_other_folds_are_none_of_its_business() -> None:
    runner = Runner("a", [Command.ask("other", "pause", 1), Claim("other", "x", "b", 1)])
    runner.look()
    assert runner.done == []


def test_a_command_that_somebody_writes_again_after_a_newer_one_is_not_carried_out_again() -> None:
    topic: list[Item] = [Command.ask("mirror", "rebuild", 1)]
    runner = Runner("a", topic)
    runner.look()
    topic.append(Command.ask("mirror", "pause", 2))
    runner.look()
    topic.append(topic[0])
    runner.look()
    late = Runner("b", topic)
    late.look()
    assert (runner.done, late.done) == (["rebuild", "pause"], ["pause"])

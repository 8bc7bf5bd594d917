"""Timers against a plain dictionary: due names come out once, in order, and memory stays bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.groups.timers import STALE_ENTRIES_MIN, Timers

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("due"), st.just(0), st.integers(0, 50)),
    ),
    max_size=60,
)


@given(STEPS)
def test_timers_behave_like_a_dictionary_of_deadlines(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    for action, name, at_ms in steps:
        if action == "set":
            timers.set(name, at_ms)
            model[name] = at_ms
        elif action == "cancel":
            timers.cancel(name)
            model.pop(name, None)
        else:
            came = list(timers.due(at_ms))
            assert sorted(came) == sorted(name for name, deadline in model.items() if deadline <= at_ms)
            assert [model[name] for name in came] == sorted(model[name] for name in came)
            model = {name: deadline for name, deadline in model.items() if deadline > at_ms}
        assert timers.next_deadline_ms() == min(model.values(), default=None)
        assert len(timers) == len(model)
        assert all((name in timers) == (name in model) for name in range(6))


def test_timers_that_come_and_go_leave_nothing_behind() -> None:
    timers: Timers[int] = Timers()
    for name in range(10_000):
        timers.set(name, 1e9)
        timers.cancel(name)
    assert len(timers._heap) <= STALE_ENTRIES_MIN + 1
    assert len(timers._queued) <= STALE_ENTRIES_MIN + 1


def test_moving_a_deadline_later_again_and_again_costs_no_memory() -> None:
    timers: Timers[str] = Timers()
    for at_ms in range(10_000):
        timers.set("heartbeat", at_ms)
    assert len(timers._heap) == 1
    assert timers.next_deadline_ms() == 9_999

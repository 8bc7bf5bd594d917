"""Ctrl-C is put off while a step must not be torn apart, and no longer; who presses it again means it."""

from __future__ import annotations

import os
import signal

import pytest

from foldlog.cli.signals import Interrupts
from foldlog.testing.sim_clock import SimClock


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_it_is_heard_at_once_where_nothing_is_put_off() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupts():
        press()
    assert signal.getsignal(signal.SIGINT) is before


def test_it_waits_for_the_end_of_a_step_and_twice_in_a_moment_is_once() -> None:
    clock = SimClock()
    with Interrupts(clock) as interrupts:
        interrupts.is_put_off = True
        press()
        clock.advance(100)
        press()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_a_second_one_does_not_wait() -> None:
    clock = SimClock()
    with Interrupts(clock) as interrupts:
        interrupts.is_put_off = True
        press()
        clock.advance(1000)
        with pytest.raises(KeyboardInterrupt):
            press()


def test_nothing_is_raised_where_nothing_was_pressed_and_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            press()
            interrupts.check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)

"""Who asks for a user that does not exist costs the broker the same work as who has a wrong password, so that its time
tells nothing.

Time itself is not asserted: counted is the work. Every line of Python that runs in an exchange, and every hash with its
iterations, in a directory with one user and with thousands.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import foldlog
from foldlog.broker.access.scram import LoginRefused
from foldlog.broker.access.users import Users
from foldlog.client.wire.logins.scram import ScramClient
from foldlog.server.access.mechanisms import PlainExchange, SaslExchange, ScramExchange
from server.access.sasl_broker import credentials

MANY = 3000
CODE = str(Path(foldlog.__file__).parent)
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def users_of(count: int) -> Users:
    kept = credentials("right")
    return Users(bytes(32), {f"user-{number:05}": kept for number in range(count)})


@contextmanager
def work() -> Iterator[list[Any]]:
    """What of our code runs meanwhile: a line each, and each slow hash."""
    done: list[Any] = []
    hash_slowly, tracing = hashlib.pbkdf2_hmac, sys.gettrace()

    def noted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        done.append((name, len(salt), iterations))
        return hash_slowly(name, password, salt, iterations)

    def line(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        if event == "line":
            done.append((frame.f_code.co_filename, frame.f_lineno))
        return line

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashlib, "pbkdf2_hmac", noted)
        sys.settrace(line)
        try:
            yield done
        finally:
            sys.settrace(tracing)


def exchange_of(mechanism: str, users: Users) -> SaslExchange:
    async def knows(name: str, password: str) -> bool:
        return users.knows(name, password)

    return PlainExchange(knows) if mechanism == "PLAIN" else ScramExchange(mechanism, users)


def refused(mechanism: str, users: Users, name: str) -> list[Any]:
    """The broker's work for a whole exchange of that user with a wrong password."""
    exchange = exchange_of(mechanism, users)
    done: list[Any] = []
    if mechanism == "PLAIN":
        done += _step(lambda: exchange.respond(f"\0{name}\0wrong".encode()), is_refused=True)[0]
        return done
    client = ScramClient(mechanism, name, "wrong", "nonce")
    first = client.first()
    steps, challenge = _step(lambda: exchange.respond(first), is_refused=False)
    final = client.final(challenge.answer)
    return steps + _step(lambda: exchange.respond(final), is_refused=True)[0]


def _step(respond: Callable[[], Awaitable[Any]], *, is_refused: bool) -> tuple[list[Any], Any]:
    answer = None

    async def answered() -> Any:
        return await respond()

    with work() as done:
        if is_refused:
            with pytest.raises(LoginRefused):
                asyncio.run(answered())
        else:
            answer = asyncio.run(answered())
    return done, answer


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_unknown_user_costs_the_work_of_a_wrong_password(mechanism: str, count: int) -> None:
    users = users_of(count)
    for name in ("user-00000", "nobody"):
        refused(mechanism, users, name)  # what is computed once, is
    known, unknown = refused(mechanism, users, "user-00000"), refused(mechanism, users, "nobody")
    assert len(known) > 10, "nothing was seen"
    assert known == unknown


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_work_does_not_grow_with_the_users(mechanism: str) -> None:
    few, many = users_of(1), users_of(MANY)
    for users in (few, many):
        refused(mechanism, users, "nobody")
    assert refused(mechanism, few, "nobody") == refused(mechanism, many, "nobody")

"""Memory that fetches are read into: used again while it is warm, bounded, and given up when nobody reads."""

from foldlog.server.net.memory import LENT_BYTES_MIN, ReadBuffers, ReadPool

SIZE = LENT_BYTES_MIN


def test_what_was_given_back_last_is_taken_first() -> None:
    pool = ReadPool()
    one, other = pool.take(SIZE), pool.take(SIZE)
    pool.give_back([one, other])
    assert pool.take(SIZE) is other
    assert pool.take(SIZE) is one


def test_memory_that_is_too_small_is_replaced() -> None:
    pool = ReadPool()
    pool.give_back([pool.take(SIZE)])
    assert len(pool.take(2 * SIZE)) == 2 * SIZE


def test_no_more_is_kept_than_the_bound() -> None:
    pool = ReadPool()
    many = [pool.take(1 << 20) for _ in range(20)]
    pool.give_back(many)
    again = [pool.take(1 << 20) for _ in range(20)]
    assert sum(any(one is other for other in many) for one in again) == 8


def test_what_nobody_used_for_a_while_is_given_up() -> None:
    pool = ReadPool()
    kept = pool.take(SIZE)
    pool.give_back([kept])
    pool.sweep()
    pool.sweep()
    assert pool.take(SIZE) is not kept


def test_what_is_not_sent_yet_stays_with_the_socket() -> None:
    pool = ReadPool()
    sent = [False]
    buffers = ReadBuffers(lambda: sent[0], pool)
    first = buffers.lend(SIZE)
    buffers.reclaim()
    assert buffers.capacity_bytes == SIZE
    buffers.begin()
    second = buffers.lend(SIZE)
    assert second is not first
    sent[0] = True
    buffers.reclaim()
    assert buffers.capacity_bytes == 0
    assert pool.take(SIZE) is second

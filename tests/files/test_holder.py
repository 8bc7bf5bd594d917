"""The text of a lock file: whatever half of a change a reader finds, it never takes it for an address.

Every cut of one text into another is tried, as a kernel that copies byte by byte would show them.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldlog.files.holder import WriterInfo, format_holder, is_whole, parse_holder

pids = st.integers(1, 1 << 22)
addresses = st.none() | st.sampled_from(
    ["127.0.0.1:9092", "[::1]:9092", "localhost:1", "a.very.long.name.example:65535"]
)


@given(pid=pids, address=addresses)
def test_what_was_written_is_read_back(pid: int, address: str | None) -> None:
    data = format_holder(pid, address)
    assert parse_holder(data) == WriterInfo(pid, address)
    assert is_whole(data)


@given(old=st.tuples(pids, addresses), new=st.tuples(pids, addresses))
def test_a_change_that_is_under_way_shows_the_old_address_the_new_one_or_none(
    old: tuple[int, str | None], new: tuple[int, str | None]
) -> None:
    before, after = format_holder(*old), format_holder(*new)
    for cut in range(len(after) + 1):
        seen = after[:cut] + before[cut:]
        found = parse_holder(seen)
        assert found.address in {old[1], new[1], None}
        if found.address is not None:
            assert (found.pid, found.address) in {old, new}
        if is_whole(seen):
            assert (found.pid, found.address) in {old, new} or found.address is None


@given(data=st.binary(max_size=100))
def test_noise_is_nobodys_address(data: bytes) -> None:
    found = parse_holder(data)
    assert found.address is None

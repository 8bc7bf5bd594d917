"""Where an offset of a source is in its copy: told exactly only if it is known, whatever the source has lost since."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldlog.client.copy.offsets import CopyPoint, OffsetMap, TranslatedOffset

OFFSETS = st.sets(st.integers(0, 30))


def counted(records: set[int], start: int, stop: int) -> int:
    return sum(start <= offset < stop for offset in records)


@given(copied=OFFSETS, lost=OFFSETS, cuts=OFFSETS, start=st.integers(0, 5), offset=st.integers(0, 35))
def test_a_place_is_said_to_be_exact_only_if_it_is(
    copied: set[int], lost: set[int], cuts: set[int], start: int, offset: int
) -> None:
    """A model: which offsets had records when they were copied, which of those are gone, and where points are known."""
    copied = {record for record in copied if record >= start}
    known = [start, *sorted(cut for cut in cuts if start < cut < 31), 31]
    points = tuple(CopyPoint(source, counted(copied, start, source)) for source in known)
    place = OffsetMap(points, is_kept=False).translated(offset, lambda a, b: counted(copied - lost, a, b))
    assert place.earliest <= counted(copied, start, offset) <= place.latest
    if not copied & lost:
        assert place.is_exact


def test_what_was_dense_is_exact_for_good() -> None:
    """As many records as offsets: nobody has to count them, and the source may lose all of them."""
    dense = OffsetMap((CopyPoint(10, 0), CopyPoint(20, 10), CopyPoint(50, 12)), is_kept=False)
    assert dense.translated(15, lambda start, stop: 0) == TranslatedOffset(5, 5)
    assert dense.translated(30, lambda start, stop: 0) == TranslatedOffset(10, 12)
    assert dense.translated(49, lambda start, stop: 0) == TranslatedOffset(11, 12)

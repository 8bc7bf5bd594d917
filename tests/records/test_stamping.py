"""Numbers put into a batch afterwards make the same bytes as a batch that was built with them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldlog.records.loops import BatchBuilder, walk
from foldlog.records.stamping import offset_span, stamp_producer


@given(
    values=st.lists(st.binary(max_size=50), min_size=1, max_size=20),
    producer_id=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**15 - 1),
    sequence=st.integers(0, 2**31 - 1),
    codec=st.sampled_from([0, 3]),
)
def test_a_stamped_batch_is_the_one_that_was_built_with_the_numbers(
    values: list[bytes], producer_id: int, epoch: int, sequence: int, codec: int
) -> None:
    builder = BatchBuilder(1 << 20)
    for value in values:
        builder.append(1000, None, value)
    numbered = builder.build(codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    plain = builder.build(codec)
    stamp_producer(plain, producer_id, epoch, sequence)
    assert plain == numbered
    assert offset_span(plain) == len(values)
    assert walk(plain).problem is None, "the CRC is that of the new bytes"

"""The power-loss harness itself: each sentence of its fault model, shown on small files.

A harness that cannot lose anything finds nothing, so each test collects the images of many cuts and says which states
must be among them and which must not.
"""

from __future__ import annotations

import random

import pytest

from foldlog.files.base import replace_file
from foldlog.testing.disk_image import DiskImage, Tree
from foldlog.testing.power_cuts import PowerCuts, Violation
from foldlog.testing.power_loss import SECTOR_BYTES, Fate, PowerLossFiles


def start(**contents: bytes) -> PowerLossFiles:
    """A disk on which these files stand in the directory 'd', all synced."""
    return PowerLossFiles(DiskImage({"d": dict(contents)}))


def images(files: PowerLossFiles, count: int = 400) -> list[dict[str, Tree]]:
    """What a cut now may leave in 'd', many times."""
    units = len(files.unsynced())
    found = []
    for seed in range(count):
        rng = random.Random(seed)
        tree = files.image(rng.choices(list(Fate), k=units), rng).tree["d"]
        assert isinstance(tree, dict)
        found.append(tree)
    return found


def test_what_is_synced_is_in_every_image() -> None:
    files = start()
    file = files.open("d/a", write=True, create=True)
    file.write(0, [b"x" * 2000])
    file.sync()
    files.sync_directory("d")
    file.write(1000, [b"y" * 2000])
    for tree in images(files):
        data = tree["a"]
        assert isinstance(data, bytes)
        assert data[:1000] == b"x" * 1000
        assert len(data) >= 2000


def test_each_unsynced_sector_is_kept_dropped_or_torn_by_itself() -> None:
    files = start(a=b"o" * 3 * SECTOR_BYTES)
    files.open("d/a", write=True).write(0, [b"N" * 3 * SECTOR_BYTES])
    states = set()
    for tree in images(files):
        data = tree["a"]
        assert isinstance(data, bytes)
        assert set(data) <= set(b"oN")
        sectors = [data[at : at + SECTOR_BYTES] for at in range(0, len(data), SECTOR_BYTES)]
        states.add(tuple("o" if set(one) == {111} else "N" if set(one) == {78} else "mix" for one in sectors))
    assert states == {(a, b, c) for a in ("o", "N", "mix") for b in ("o", "N", "mix") for c in ("o", "N", "mix")}


def test_bytes_that_nobody_wrote_keep_their_value_in_a_torn_sector() -> None:
    files = start(a=b"o" * 300)
    files.open("d/a", write=True).write(300, [b"N" * 100])
    for tree in images(files):
        data = tree["a"]
        assert isinstance(data, bytes)
        assert data[:300] == b"o" * 300


def test_a_sector_may_be_left_as_it_was_between_two_writes() -> None:
    files = start(a=b"0")
    file = files.open("d/a", write=True)
    file.write(0, [b"1"])
    file.write(0, [b"2"])
    assert {tree["a"] for tree in images(files)} == {b"0", b"1", b"2"}


def test_the_size_may_be_old_new_or_between_whatever_became_of_the_bytes() -> None:
    files = start(a=b"o" * 100)
    files.open("d/a", write=True).write(100, [b"N" * 1500])
    found = [tree["a"] for tree in images(files) if isinstance(tree["a"], bytes)]
    assert {len(data) for data in found} == {100, 512, 1024, 1536, 1600}
    assert any(len(data) == 1600 and not any(data[600:]) for data in found), "a new size without its bytes"


def test_new_space_may_show_anything_where_it_is_torn() -> None:
    files = start(a=b"")
    files.open("d/a", write=True).write(0, [b"N" * 400])
    assert any(set(data) - set(b"\0N") for tree in images(files) for data in [tree["a"]] if isinstance(data, bytes))


def test_a_truncation_is_unsynced_like_any_write() -> None:
    files = start(a=b"o" * 1000)
    file = files.open("d/a", write=True)
    file.truncate(100)
    assert {len(tree["a"]) for tree in images(files)} >= {100, 1000}
    file.sync()
    assert {tree["a"] for tree in images(files)} == {b"o" * 100}


def test_names_are_lost_or_kept_in_any_combination_until_the_directory_is_synced() -> None:
    files = start(a=b"", b=b"")
    files.unlink("d/a")
    files.unlink("d/b")
    files.open("d/c", create=True)
    assert len({frozenset(tree) for tree in images(files)}) == 8
    files.sync_directory("d")
    assert {frozenset(tree) for tree in images(files)} == {frozenset("c")}


def test_a_synced_file_is_lost_with_its_unsynced_name() -> None:
    files = start()
    file = files.open("d/a", write=True, create=True)
    file.write(0, [b"data"])
    file.sync()
    assert {tuple(tree.items()) for tree in images(files)} == {(), (("a", b"data"),)}


def test_a_rename_leaves_one_name_or_the_other_and_replaces_atomically() -> None:
    files = start(a=b"new", b=b"old")
    files.rename("d/a", "d/b")
    assert {tuple(sorted(tree.items())) for tree in images(files)} == {
        (("a", b"new"), ("b", b"old")),
        (("b", b"new"),),
    }


def test_a_chain_of_renames_never_leaves_two_names_of_one_file() -> None:
    files = start(a=b"1")
    files.rename("d/a", "d/b")
    files.rename("d/b", "d/c")
    assert {frozenset(tree) for tree in images(files)} == {frozenset("a"), frozenset("b"), frozenset("c")}


def test_a_directory_moves_with_what_is_in_it() -> None:
    files = PowerLossFiles(DiskImage({"d": {"p": {"log": b"1"}}}))
    files.rename("d/p", "d/q")
    assert {tuple(tree) for tree in images(files)} == {("p",), ("q",)}
    assert all(inner == {"log": b"1"} for tree in images(files) for inner in tree.values())


def test_a_store_is_unsynced_until_its_file_is_synced() -> None:
    files = start(m=bytes(1024))
    allocated = files.allocate("d/m", 1024)
    allocated.store(512, b"slot")
    found = {tree["m"][512:516] for tree in images(files) if isinstance(tree["m"], bytes)}
    assert {b"slot", b"\0\0\0\0", b"sl\0\0"} <= found
    allocated.sync()
    assert {tree["m"] for tree in images(files)} == {bytes(512) + b"slot" + bytes(508)}


def test_replacing_a_file_leaves_the_old_bytes_or_the_new_after_every_cut() -> None:
    files = start(c=b"old bytes")
    seen = set()

    def look(image: DiskImage) -> None:
        tree = image.tree["d"]
        assert isinstance(tree, dict)
        assert tree["c"] in (b"old bytes", b"new")
        seen.add(tree["c"])

    cuts = PowerCuts(look, seed=1)
    replace_file(cuts.attach(files), "d/c", b"new")
    assert cuts.finish() > 5
    assert seen == {b"old bytes", b"new"}
    assert {tree["c"] for tree in images(files)} == {b"new"}


def test_a_short_run_takes_a_share_of_the_images_at_every_cut() -> None:
    def looked_at(every: int) -> list[tuple[int, int]]:
        """Of each image the operation, and how many of twelve changes it has."""
        files = start(a=b"")
        found = []

        def look(image: DiskImage) -> None:
            tree = image.tree["d"]
            assert isinstance(tree, dict)
            found.append((files.operation, len(tree)))

        PowerCuts(look, seed=1, mixes=4, every=every).attach(files)
        for number in range(12):
            files.open(f"d/{number}", write=True, create=True).close()
        return found

    whole, short = looked_at(1), looked_at(4)
    assert len(whole) / 5 < len(short) < len(whole) / 2
    assert {operation for operation, _ in short} == {operation for operation, _ in whole}
    assert min(count for _, count in short) == 1, "nothing of it"
    for operation in {operation for operation, _ in short}:
        assert max(count for at, count in short if at == operation) == operation + 1, "all of it"


def test_what_a_failed_sync_lost_is_not_written_by_the_next() -> None:
    files = start(a=b"")
    file = files.open("d/a", write=True)
    file.write(0, [b"x" * 600])
    files.fail_next_sync()
    with pytest.raises(OSError, match="error"):
        file.sync()
    assert file.read(0, 600) == b"x" * 600, "still visible"
    file.write(600, [b"y" * 600])
    file.sync()
    data = files.image([], random.Random(0)).tree["d"]
    assert data == {"a": bytes(512) + b"x" * 88 + b"y" * 600}, "only the sectors written since reach the disk"


def test_a_failure_names_what_is_needed_to_see_it_again() -> None:
    def run(only: tuple[int, int] | None) -> PowerCuts:
        def look(image: DiskImage) -> None:
            tree = image.tree["d"]
            assert isinstance(tree, dict)
            assert "b" in tree or "a" in tree, "both names are gone"

        files = start(a=b"1")
        cuts = PowerCuts(look, seed=7, only=only)
        cuts.attach(files)
        files.open("d/b", write=True, create=True).write(0, [b"1"])
        files.unlink("d/a")
        return cuts

    with pytest.raises(
        Violation, match=r"after operation 3 \(unlink d/a\).*seed 7; replay with only=\(3, \d+\)"
    ) as found:
        run(None).finish()
    text = str(found.value)
    assert "both names are gone" in text
    assert "remove /d/a: kept" in text
    number = int(text.partition("only=(3, ")[2].partition(")")[0])
    replayed = run((3, number))
    assert replayed.images == 1
    with pytest.raises(Violation, match="both names are gone"):
        replayed.finish()

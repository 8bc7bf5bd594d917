"""settings.json: what is written is read again, a wrong byte is noticed, a power cut leaves all of a change or none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker import dynamic_settings
from foldlog.broker.broker import Broker
from foldlog.broker.dynamic_settings import SETTINGS_NAME, ChangedSettings, DynamicSettings, decode, encode
from foldlog.errors import CorruptLog, InvalidConfig, NewerVersion, StorageError
from foldlog.files.base import Files, replace_file
from foldlog.files.memory import MemoryFiles
from foldlog.limits import DYNAMIC_SETTINGS_BYTES_MAX
from foldlog.testing.power_cuts import PowerCuts, Violation
from foldlog.testing.power_loss import DiskImage, PowerLossFiles

TEXT = st.text(max_size=5)
SETTINGS = st.dictionaries(TEXT, TEXT, min_size=1, max_size=3)
RESOURCES = st.dictionaries(TEXT, st.dictionaries(TEXT, SETTINGS, min_size=1, max_size=2), max_size=3)


@given(epoch=st.integers(0, 99), resources=RESOURCES)
def test_what_is_written_is_read(epoch: int, resources: dict[str, dict[str, dict[str, str]]]) -> None:
    settings = ChangedSettings(epoch, resources)
    assert decode(encode(settings), "path") == settings


@given(place=st.integers(0, 10_000), by=st.integers(1, 255))
def test_a_wrong_byte_is_noticed(place: int, by: int) -> None:
    data = bytearray(encode(ChangedSettings(3, {"broker": {"": {"log.retention.ms": "5"}}})))
    data[place % len(data)] ^= by
    with pytest.raises(CorruptLog):
        decode(bytes(data), "path")


def test_a_newer_version_is_left_alone() -> None:
    import crc32c

    body = b'{"version":9,"epoch":1,"resources":{}'
    with pytest.raises(NewerVersion):
        decode(body + f',\n"crc32c":"{crc32c.crc32c(body):08x}"}}\n'.encode(), "path")


def opened(files: MemoryFiles) -> DynamicSettings:
    files.make_directory("data")
    return DynamicSettings(files, "data", lambda: None)


def test_a_change_is_told_once_it_is_durable_and_only_if_it_is_one() -> None:
    files = MemoryFiles()
    settings = opened(files)
    told: list[ChangedSettings] = []
    settings.watchers.append(told.append)
    settings.change("broker", "1", lambda _: {"a": "1"})
    settings.change("broker", "1", lambda before: before)
    settings.change("broker", "1", lambda _: {"a": "2"}, validate_only=True)
    assert [one.of("broker", "1") for one in told] == [{"a": "1"}]
    assert opened(files).current == settings.current == told[0]
    settings.change("broker", "1", lambda _: {})
    assert (settings.current.resources, settings.current.epoch) == ({}, 2)
    assert opened(files).current.epoch == 2, "epochs never go back"


def test_a_refused_decision_changes_nothing() -> None:
    files = MemoryFiles()
    settings = opened(files)

    def refuse(before: object) -> dict[str, str]:
        raise InvalidConfig("no")

    with pytest.raises(InvalidConfig):
        settings.change("broker", "1", refuse)
    with pytest.raises(InvalidConfig, match="at most"):
        settings.change("broker", "1", lambda _: {"a": "x" * DYNAMIC_SETTINGS_BYTES_MAX})
    assert settings.current == ChangedSettings()
    assert not files.exists(f"data/{SETTINGS_NAME}")


def test_a_damaged_file_is_refused_with_what_to_do() -> None:
    files = MemoryFiles()
    Broker.open("data", files=files, background=False).close()
    replace_file(files, f"data/{SETTINGS_NAME}", b"{}")
    with pytest.raises(StorageError, match="remove it"):
        Broker.open("data", files=files, background=False)
    files.unlink(f"data/{SETTINGS_NAME}")
    Broker.open("data", files=files, background=False).close()


@pytest.mark.parametrize("is_planted", [False, True])
def test_a_power_cut_leaves_all_of_a_change_or_nothing(is_planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a file that is written in place is found torn."""
    if is_planted:
        monkeypatch.setattr(dynamic_settings, "replace_file", write_in_place)
    states = [ChangedSettings(), ChangedSettings()]  # what was promised, and what is under way

    def check(image: DiskImage) -> None:
        with Broker.open("data", files=image.files(), background=False) as broker:
            assert broker.dynamic_settings.current in states

    cuts = PowerCuts(check, seed=1, promises=lambda: states[0].epoch)
    files = PowerLossFiles()
    with Broker.open("data", files=files, background=False) as broker:
        cuts.attach(files)
        for number in range(4):
            settings = {"log.retention.ms": str(number), "max.connections": str(number + 1)} if number < 3 else {}
            states[1] = states[0].changed("broker", "1", settings)
            states[0] = broker.dynamic_settings.change("broker", "1", lambda _, wanted=settings: wanted)  # type: ignore[misc]
    if is_planted:
        with pytest.raises(Violation):
            cuts.finish()
    else:
        assert cuts.finish() > 10


def write_in_place(files: Files, path: str, data: bytes) -> None:
    file = files.open(path, write=True, create=True)
    file.truncate(0)
    file.write(0, [data])
    file.sync()
    files.sync_directory("data")
    file.close()

"""access.json: what was changed is there after a restart, all or nothing, for its owner's eyes only."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from foldlog.broker.access.acls import Acl, AclOperation, Acls, PatternType, Permission, ResourceType
from foldlog.broker.access.quotas import CLIENT_ID, FETCH_BYTES, PRODUCE_BYTES, USER, Quotas, entity
from foldlog.broker.access.store import ACCESS_NAME, Access, AccessStore
from foldlog.broker.access.users import credentials_for
from foldlog.errors import CorruptLog, InvalidArgument, NewerVersion
from foldlog.files.posix import PosixFiles
from foldlog.testing.power_cuts import PowerCuts
from foldlog.testing.power_loss import PowerLossFiles

ACL = Acl(ResourceType.TOPIC, "orders", PatternType.PREFIXED, 'User:"ä"', "*", AclOperation.READ, Permission.ALLOW)
BOTH = entity({USER: "alice", CLIENT_ID: None})


def store(directory: Path) -> AccessStore:
    return AccessStore(PosixFiles(), str(directory), lambda: None)


def with_all(access: Access) -> Access:
    return replace(
        access,
        users=access.users.with_credentials("alice", credentials_for("secret", 4096)),
        acls=access.acls.with_more([ACL]),
        quotas=access.quotas.changed(BOTH, {PRODUCE_BYTES: 1000.0}),
    )


def test_what_was_changed_is_there_again(tmp_path: Path) -> None:
    changed = store(tmp_path).change(with_all)
    again = store(tmp_path).current
    assert again == changed
    assert again.users.kinds == changed.users.kinds
    assert again.epoch == 1
    assert again.users.knows("alice", "secret")


def test_only_the_owner_can_read_it_also_where_a_draft_lay_about(tmp_path: Path) -> None:
    draft = tmp_path / (ACCESS_NAME + ".tmp")
    draft.write_text("left over")
    draft.chmod(0o666)
    before = os.umask(0)
    try:
        store(tmp_path).change(with_all)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / ACCESS_NAME).stat().st_mode) == 0o600


def test_no_password_is_in_the_file(tmp_path: Path) -> None:
    store(tmp_path).change(with_all)
    assert b'secret"' in (tmp_path / ACCESS_NAME).read_bytes()  # the name of the directory's secret
    assert b'"secret"' not in (tmp_path / ACCESS_NAME).read_bytes().replace(b'"secret":', b"")


def test_a_change_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    kept = store(tmp_path)
    with pytest.raises(InvalidArgument):
        kept.change(lambda access: replace(access, quotas=access.quotas.changed(BOTH, {"colour": 1.0})))
    assert kept.current == Access(0, kept.current.users)
    assert not (tmp_path / ACCESS_NAME).exists()


def test_watchers_see_each_change_once_it_is_durable(tmp_path: Path) -> None:
    kept = store(tmp_path)
    seen: list[bool] = []
    kept.watchers.append(lambda access: seen.append(store(tmp_path).current == access))
    kept.change(with_all)
    kept.change(lambda access: replace(access, acls=Acls()))
    kept.change(lambda access: access)
    assert seen == [True, True]


@pytest.mark.parametrize("position", [0, 20, -12])
def test_a_flipped_byte_is_noticed(tmp_path: Path, position: int) -> None:
    store(tmp_path).change(with_all)
    path = tmp_path / ACCESS_NAME
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match=ACCESS_NAME):
        store(tmp_path)


def test_a_newer_version_is_called_newer(tmp_path: Path) -> None:
    from foldlog.broker.checked_json import sealed

    (tmp_path / ACCESS_NAME).write_bytes(sealed('{"version":2'))
    with pytest.raises(NewerVersion):
        store(tmp_path)


def test_a_power_cut_leaves_the_old_state_or_the_new_one() -> None:
    files = PowerLossFiles()
    files.make_directory("/data")
    files.sync_directory("/")
    kept = AccessStore(files, "/data", lambda: None)
    kept.change(with_all)
    found: set[int] = set()
    cuts = PowerCuts(lambda image: found.add(AccessStore(image.files(), "/data", lambda: None).current.epoch), seed=1)
    cuts.attach(files)
    kept.change(lambda access: replace(access, quotas=Quotas()))
    files.on_operation = lambda: None
    assert cuts.failure is None
    assert found == {1, 2}


@pytest.mark.parametrize(
    ("user", "client", "rate", "shared"),
    [
        ("alice", "a", 1.0, ("user", "alice", "client-id", "a")),
        ("alice", "b", 2.0, ("user", "alice", "client-id", "b")),
        ("bob", "a", 3.0, ("user", "bob")),
        ("carol", "a", 4.0, ("user", "carol", "client-id", "a")),
        ("carol", "b", 5.0, ("user", "carol")),
    ],
)
def test_the_most_particular_quota_counts(user: str, client: str, rate: float, shared: tuple[str, ...]) -> None:
    rows: list[tuple[dict[str, str | None], float]] = [
        ({"user": "alice", "client-id": "a"}, 1.0),
        ({"user": "alice", "client-id": None}, 2.0),
        ({"user": "bob"}, 3.0),
        ({"user": None, "client-id": "a"}, 4.0),
        ({"user": None}, 5.0),
        ({"client-id": "a"}, 6.0),
        ({"client-id": None}, 7.0),
    ]
    quotas = Quotas()
    for named, value in rows:
        quotas = quotas.changed(entity(named), {FETCH_BYTES: value})
    quota = quotas.for_client(FETCH_BYTES, user, client)
    assert quota is not None
    assert (quota.rate, quota.shared_by) == (rate, shared)
    assert quotas.for_client(PRODUCE_BYTES, user, client) is None

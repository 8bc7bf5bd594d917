"""`history(place, name, order_by=...)`: every version of each row, and from when to when it is valid; and
`table(..., order_by=...)`, which shows the newest of them. The engine follows from the location, as for counters.

`SELECT * FROM payments` is an SQL view over the table with the versions, `payments__1`; a rebuild makes `payments__2`
and points the view at it. You may index the table; do not write to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import PathLike, as_text
from foldlog.views.counters.counters import DUCKDB_ENDINGS, DUCKDB_PREFIX
from foldlog.views.sql.postgres import is_postgres_url

if TYPE_CHECKING:
    from typing import Any

    from foldlog.views.versions.view import VersionsView


def history(
    url_or_path: str | PathLike[str], name: str, *, order_by: str, key: str | Sequence[str] | None = None
) -> VersionsView[Any]:
    """Every version of each key: the fold's columns, `valid_from`, which is `order_by`, and `valid_to`, which is the
    next version's and null for the current one. A slowly changing dimension of type 2. Nothing is created yet.

    `key` are the columns whose versions these are; by default the column of the record's key.
    """
    return versions_at(url_or_path, name, key, order_by, keeps_all=True)


def versions_at(
    url_or_path: str | PathLike[str],
    name: object,
    key: str | Sequence[str] | None,
    order_by: object,
    *,
    keeps_all: bool,
) -> VersionsView[Any]:
    """The view in the engine that the place says."""
    from foldlog.views.versions.view import DuckdbVersions, PostgresVersions, SqliteVersions, Versions

    if not isinstance(order_by, str) or not order_by:
        raise InvalidArgument(f"order_by= names the column of the version, such as 'at', not {brief_repr(order_by)}")
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a view has a name beside its place, such as 'customers', not {brief_repr(name)}")
    given: tuple[object, ...] = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    names = tuple(one for one in given if isinstance(one, str) and one)
    if len(names) < len(given) or (key is not None and not names):
        raise InvalidArgument(f"a key is a column or a list of columns, such as ['id', 'line'], not {brief_repr(key)}")
    asked = Versions(names, order_by, keeps_all)
    text: object = as_text(url_or_path)
    if isinstance(text, str) and is_postgres_url(text):
        return PostgresVersions(text, asked, name)
    if isinstance(text, str) and (text.startswith(DUCKDB_PREFIX) or text.endswith(DUCKDB_ENDINGS)):
        return DuckdbVersions(text.removeprefix(DUCKDB_PREFIX), asked, name)
    return SqliteVersions(text, asked, name)

"""Where an Iceberg table is named: in a catalog of its own, a SQLite file beside its data, or in one that is given.

    lake("views/payments", "iceberg")                       views/payments/catalog.db names foldlog.payments
    lake("shop.payments", "iceberg", catalog={"type": "rest", "uri": "https://..."})
    lake("shop.payments", "iceberg", catalog="prod")        of .pyiceberg.yaml, or of PYICEBERG_CATALOG__PROD__...

A given catalog is opened by pyiceberg, with its own settings: REST, SQL, Glue, Hive. Those of the table's files, such
as `s3.endpoint`, are among them, unless the catalog hands them out itself.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from foldlog.errors import InvalidArgument, ViewUnavailable, brief_repr
from foldlog.files.paths import exists, make_parents, names_in, put_first, remove, remove_tree, sync_parent
from foldlog.views.lake.storage import StorageOptions

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

NAMESPACE: Final = "foldlog"
"""The namespace of the tables in a catalog of their own, and the name of that catalog."""

FILES: Final = "foldlog.views.lake.iceberg_files.SyncedFiles"

_CATALOG: Final = "catalog.db"
_FIRST_TRIES: Final = 3


class IcebergCatalog(ABC):
    """Opens a catalog, for one call: a connection to one that was replaced meanwhile would write to the old."""

    namespace: tuple[str, ...]
    options: StorageOptions
    place: str

    @abstractmethod
    def opened(self, *, create: bool) -> Catalog | None:
        """None if there is none and `create` is not set."""

    @abstractmethod
    def location(self, name: str) -> str | None:
        """Where a new table of this name is to be; None if the catalog decides that."""

    def emptied(self) -> None:  # noqa: B027 a given catalog stays
        """After its last table was dropped."""


class OwnCatalog(IcebergCatalog):
    """A SQLite file in the directory of the table."""

    namespace = (NAMESPACE,)

    def __init__(self, path: str) -> None:
        self.path = path
        self.place = f"iceberg:{path}"
        self.options = StorageOptions()

    def opened(self, *, create: bool) -> Catalog | None:
        path = f"{self.path}/{_CATALOG}"
        if create and not exists(path):
            self._make(path)
        return self._catalog(path) if exists(path) else None

    def location(self, name: str) -> str:
        # A name of its own: a shadow that is swapped in keeps its files where they are.
        return f"{self.path}/{name}-{uuid.uuid4().hex}"

    def emptied(self) -> None:
        remove_tree(self.path)

    def _catalog(self, path: str) -> Catalog:
        from pyiceberg.catalog.sql import SqlCatalog
        from sqlalchemy import URL

        uri = URL.create("sqlite", database=path).render_as_string()
        return SqlCatalog(NAMESPACE, uri=uri, warehouse=self.path, **{"py-io-impl": FILES})

    def _make(self, path: str) -> None:
        """An empty one; of several processes that make it at once, one is the first."""
        make_parents(path)
        sync_parent(self.path)
        strange = [name for name in names_in(self.path) if not name.startswith(_CATALOG)]
        if strange and not exists(path):
            raise ViewUnavailable(self.place, "the directory holds other files; choose an empty one")
        draft = f"{path}.{uuid.uuid4().hex}"
        try:
            with closing(self._catalog(draft)) as catalog:
                catalog.create_namespace(NAMESPACE)
            # Atomically: pyiceberg would fail on a catalog that another process has only half created.
            put_first(draft, path)
        finally:
            remove(draft)


class GivenCatalog(IcebergCatalog):
    """A catalog of pyiceberg's, by its settings, or by its name in pyiceberg's own configuration."""

    def __init__(self, catalog: str | Mapping[str, str], namespace: tuple[str, ...]) -> None:
        self.namespace = namespace
        self._name = catalog if isinstance(catalog, str) else str(dict(catalog).get("name", NAMESPACE))
        self.options = StorageOptions({} if isinstance(catalog, str) else catalog)
        self.place = f"iceberg:{self._shown()}"

    def opened(self, *, create: bool) -> Catalog | None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NamespaceAlreadyExistsError
        from sqlalchemy.exc import SQLAlchemyError

        given = {name: value for name, value in self.options.items() if name != "name"}
        # pyiceberg's own files, but that those on a local disk are synced.
        given = {"py-io-impl": FILES, **given}
        if not create:
            return load_catalog(self._name, **given)
        # A catalog in a database makes its tables when it is first opened, and two who do so at once collide.
        for _ in range(_FIRST_TRIES):
            try:
                found = load_catalog(self._name, **given)
                found.create_namespace_if_not_exists(self.namespace)
                return found
            except (SQLAlchemyError, NamespaceAlreadyExistsError):
                continue
        found = load_catalog(self._name, **given)
        found.create_namespace_if_not_exists(self.namespace)
        return found

    def location(self, name: str) -> None:
        return None

    def _shown(self) -> str:
        """The catalog without secrets: what tells it from others."""
        parts = urlsplit(self.options.get("uri", ""))
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
        where = f"{host}{parts.path}".strip("/")
        warehouse = self.options.get("warehouse", "").partition("?")[0]
        return "/".join(part for part in (self._name, where, warehouse) if part)


def given_catalog(catalog: object, identifier: str) -> tuple[GivenCatalog, str]:
    """The catalog, and the table's name in it; InvalidArgument if one of them cannot be."""
    *namespace, name = identifier.split(".")
    if not namespace or not name or not all(namespace) or "/" in identifier:
        raise InvalidArgument(f"a table of a catalog is named as in 'shop.payments', not {brief_repr(identifier)}")
    if not (isinstance(catalog, str) and catalog) and not isinstance(catalog, Mapping):
        raise InvalidArgument(
            "catalog= is a name of pyiceberg's configuration, or its settings, such as"
            f" {{'type': 'rest', 'uri': 'https://...'}}, not {type(catalog).__name__}"
        )
    return GivenCatalog(catalog, tuple(namespace)), name

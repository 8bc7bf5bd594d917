"""Replaces one PostgreSQL table by another: renamed in one transaction, keeping indexes, owner, grants, comments,
storage parameters, row level security with its policies, replica identity, and settings of columns.

The indexes are built on the shadow while the old table is still read; only the renames need exclusive access, for a
moment. What cannot be carried over (views, foreign keys, triggers, rules, constraints, columns that no fold made) is
found before anything is replayed, and again here, and the swap is refused with its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from foldlog.errors import ViewInUse, ViewUnavailable
from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.names import TableName, quoted
from foldlog.views.sql.postgres import table_exists

_OTHERS: Final = """
    WITH target AS (SELECT %s::regclass::oid AS oid)
    SELECT DISTINCT CASE WHEN owner.relkind IN ('v', 'm')
                THEN CASE owner.relkind WHEN 'v' THEN 'view ' ELSE 'materialized view ' END || owner.oid::regclass
                ELSE pg_describe_object(depend.classid, depend.objid, depend.objsubid) END
    FROM target JOIN pg_depend AS depend ON depend.refclassid = 'pg_class'::regclass AND depend.refobjid = target.oid
    LEFT JOIN pg_rewrite AS rule ON depend.classid = 'pg_rewrite'::regclass AND rule.oid = depend.objid
    LEFT JOIN pg_class AS owner ON owner.oid = rule.ev_class
    WHERE depend.deptype = 'n'
      AND NOT EXISTS (SELECT FROM pg_constraint WHERE depend.classid = 'pg_constraint'::regclass
                      AND pg_constraint.oid = depend.objid AND conrelid = target.oid)
      AND NOT EXISTS (SELECT FROM pg_attrdef WHERE depend.classid = 'pg_attrdef'::regclass
                      AND pg_attrdef.oid = depend.objid AND adrelid = target.oid)
      AND NOT EXISTS (SELECT FROM pg_policy WHERE depend.classid = 'pg_policy'::regclass
                      AND pg_policy.oid = depend.objid AND polrelid = target.oid)
    UNION SELECT 'table ' || inhrelid::regclass || ', which inherits from it' FROM target
          JOIN pg_inherits ON inhparent = target.oid
    ORDER BY 1
"""
"""Dependents that are not part of a table and would prevent dropping it: views, foreign keys, functions."""

_ATTACHED: Final = """
    WITH target AS (SELECT %s::regclass::oid AS oid)
    SELECT 'trigger ' || quote_ident(tgname) FROM target JOIN pg_trigger ON tgrelid = target.oid WHERE NOT tgisinternal
    UNION SELECT 'rule ' || quote_ident(rulename) FROM target JOIN pg_rewrite ON ev_class = target.oid
    UNION SELECT 'policy ' || quote_ident(polname) || ' (with a subquery)' FROM target
          JOIN pg_policy ON polrelid = target.oid
          WHERE concat(pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)) ~* '\\mselect\\M'
    UNION SELECT 'security label of ' || provider FROM target
          JOIN pg_seclabel ON objoid = target.oid AND classoid = 'pg_class'::regclass
    UNION SELECT 'tablespace ' || quote_ident(spcname) FROM target JOIN pg_class ON pg_class.oid = target.oid
          JOIN pg_tablespace ON pg_tablespace.oid = reltablespace
    UNION SELECT 'being unlogged' FROM target JOIN pg_class ON pg_class.oid = target.oid AND relpersistence = 'u'
    UNION SELECT 'statistics ' || quote_ident(stxname) FROM target JOIN pg_statistic_ext ON stxrelid = target.oid
    UNION SELECT 'publication ' || quote_ident(pubname) || ' (its subscribers are sent rows and no renames: they would'
          || ' keep what the table was before)' FROM target JOIN pg_class ON pg_class.oid = target.oid
          JOIN pg_namespace ON pg_namespace.oid = relnamespace
          JOIN pg_publication_tables ON schemaname = nspname AND tablename = relname
    UNION SELECT 'constraint ' || quote_ident(conname) FROM target JOIN pg_constraint ON conrelid = target.oid
          WHERE contype NOT IN ('p', 'n', 't')
    UNION SELECT 'column ' || quote_ident(attname) || ' (not the fold''s)' FROM target
          JOIN pg_attribute ON attrelid = target.oid
          WHERE attnum > 0 AND NOT attisdropped AND attname <> ALL (%s)
    ORDER BY 1
"""
"""What is part of a table, was not made by a fold, and would be left behind by a swap. A publication FOR ALL TABLES
includes the new table too, but its subscribers identify tables by name: they get the new rows under the shadow's name,
fail if they have no such table, and keep the old rows under the view's name."""

_INDEXES: Final = """
    SELECT index.oid::text, index.relname, pg_get_indexdef(index.oid), obj_description(index.oid, 'pg_class'),
           indisprimary, ARRAY(SELECT DISTINCT attname::text FROM pg_depend JOIN pg_attribute
                               ON attrelid = refobjid AND attnum = refobjsubid
                               WHERE classid = 'pg_class'::regclass AND objid = index.oid AND refobjid = indrelid)
    FROM pg_index JOIN pg_class AS index ON index.oid = indexrelid
    WHERE indrelid = %s::regclass AND indisvalid ORDER BY index.oid
"""

_IDENTIFIER: Final = r'(?:"(?:[^"]|"")*"|[^\s".]+)'
_INDEX_DEFINITION: Final = re.compile(
    rf"CREATE (?P<unique>UNIQUE )?INDEX {_IDENTIFIER}"
    rf" ON (?:ONLY )?{_IDENTIFIER}(?:\.{_IDENTIFIER})? USING (?P<rest>.+)",
    re.DOTALL,
)
"""The form of pg_get_indexdef."""

_GRANTS: Final = """
    SELECT given.privilege_type, NULL::text, given.is_grantable,
           CASE given.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(given.grantee)) END
    FROM pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner))) AS given WHERE oid = %s::regclass
    UNION ALL
    SELECT given.privilege_type, attname, given.is_grantable,
           CASE given.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(given.grantee)) END
    FROM pg_attribute, aclexplode(attacl) AS given WHERE attrelid = %s::regclass AND NOT attisdropped
"""

_COMMENTS: Final = """
    SELECT NULL::text, obj_description(%s::regclass, 'pg_class')
    UNION ALL SELECT attname, col_description(attrelid, attnum) FROM pg_attribute
              WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""


_POLICIES: Final = """
    SELECT quote_ident(polname), polpermissive, polcmd::text,
           ARRAY(SELECT CASE role WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(role)) END
                 FROM unnest(polroles) AS role),
           pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid), obj_description(oid, 'pg_policy')
    FROM pg_policy WHERE polrelid = %s::regclass ORDER BY oid
"""

_COMMANDS: Final = {"*": "ALL", "r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE"}

_COLUMN_SETTINGS: Final = """
    SELECT attname, attnotnull, CASE WHEN attstattarget >= 0 THEN attstattarget END, attoptions,
           CASE attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END,
           pg_get_expr(adbin, adrelid)
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""

_RIGHTS: Final = """
    SELECT pg_has_role(current_user, relowner, 'USAGE'), quote_ident(pg_get_userbyid(relowner)),
           has_schema_privilege(current_user, relnamespace, 'CREATE'), current_user::text
    FROM pg_class WHERE oid = %s::regclass
"""


def check_swap(run: Run, location: str, live: TableName, old: TableName, own: Iterable[str]) -> None:
    """Raises what `swap_tables` would, as far as it can be known before there is a shadow."""
    if not table_exists(run, live):
        return
    ((owns, owner, may_create, user),) = run(_RIGHTS, live.sql)
    if not owns:
        raise ViewUnavailable(
            location, f"it belongs to {owner}, and only its owner can replace it; {user} is another role"
        )
    if not may_create:
        raise ViewUnavailable(
            location,
            f"{user} may not make tables in its schema; run GRANT CREATE ON SCHEMA {quoted(live.schema or '')}",
        )
    _check_dependents(run, location, live, own)
    if table_exists(run, old):
        _check_others(run, location, old)


def swap_tables(
    run: Run, location: str, live: TableName, shadow: TableName, old: TableName, own: Iterable[str]
) -> None:
    """`shadow` becomes `live`, and the previous `live` becomes `old`, whose predecessor is dropped.

    `own` are the columns that a fold made; the caller is in a transaction.
    """
    if not table_exists(run, live):
        drop_table(run, location, old)
        run(f"ALTER TABLE {shadow.sql} RENAME TO {quoted(live.name)}")
        return
    # From here on the table's definition and indexes cannot be changed; it can still be read and written.
    run(f"LOCK TABLE {live.sql} IN SHARE UPDATE EXCLUSIVE MODE")
    _check_dependents(run, location, live, own)
    renames = _build_indexes(run, location, live, shadow)
    _carry_over(run, live, shadow)
    _carry_columns(run, live, shadow)
    _carry_security(run, live, shadow)
    _carry_identity(run, live, shadow, {name: built for _, name, built in renames})
    drop_table(run, location, old)
    # Readers are only blocked from here to the commit: all slow work, above all the indexes, was done under the weaker
    # lock. That lock does not prevent new views of the table, so dependents are checked again, now that none can be
    # added.
    run(f"LOCK TABLE {live.sql} IN ACCESS EXCLUSIVE MODE")
    _check_dependents(run, location, live, own)
    for oid, name, _ in renames:
        run(f"ALTER INDEX {TableName(name, live.schema).sql} RENAME TO {quoted(f'_foldlog_old_{oid}')}")
    run(f"ALTER TABLE {live.sql} RENAME TO {quoted(old.name)}")
    run(f"ALTER TABLE {shadow.sql} RENAME TO {quoted(live.name)}")
    for _, name, built in renames:
        run(f"ALTER INDEX {TableName(built, live.schema).sql} RENAME TO {quoted(name)}")


def drop_table(run: Run, location: str, table: TableName) -> None:
    """Drop the table if it exists; ViewInUse if something depends on it."""
    if not table_exists(run, table):
        return
    _check_others(run, location, table)
    run(f"DROP TABLE {table.sql}")


def _check_others(run: Run, location: str, table: TableName) -> None:
    dependents = [f"{name} (of {table})" for (name,) in run(_OTHERS, table.sql)]
    if dependents:
        raise ViewInUse(location, dependents)


def _check_dependents(run: Run, location: str, live: TableName, own: Iterable[str]) -> None:
    dependents = [name for (name,) in run(_OTHERS, live.sql) + run(_ATTACHED, live.sql, list(own))]
    if dependents:
        raise ViewInUse(location, dependents)


def _build_indexes(run: Run, location: str, live: TableName, shadow: TableName) -> list[tuple[str, str, str]]:
    """Build the indexes of `live` on `shadow`, under temporary names: (oid of the old one, its name, the new one's)."""
    renames = []
    primary = [name for _, name, _, _, is_primary, _ in run(_INDEXES, shadow.sql) if is_primary]
    others = [definition for _, _, definition, _, is_primary, _ in run(_INDEXES, shadow.sql) if not is_primary]
    own = {found["rest"] for one in others if (found := _INDEX_DEFINITION.fullmatch(one)) is not None}
    there = _columns(run, shadow)
    for oid, name, definition, comment, is_primary, columns in run(_INDEXES, live.sql):
        gone = sorted(set(columns) - there)
        if gone and not is_primary:
            raise ViewInUse(location, [f"index {quoted(name)} on column {gone[0]}, which the fold no longer has"])
        if is_primary:
            built = primary[0]
        else:
            built = f"_foldlog_new_{oid}"
            parts = _INDEX_DEFINITION.fullmatch(definition)
            if parts is None:
                raise ViewUnavailable(location, f"its index {name} cannot be carried over; drop it first")
            if parts["rest"] in own:
                continue  # the fold's own, such as that of the records that rows are of
            run(f"CREATE {parts['unique'] or ''}INDEX {quoted(built)} ON {shadow.sql} USING {parts['rest']}")
        if comment is not None:
            run(f"COMMENT ON INDEX {TableName(built, live.schema).sql} IS {_literal(run, comment)}")
        renames.append((oid, name, built))
    return renames


def _carry_over(run: Run, live: TableName, shadow: TableName) -> None:
    """Owner, storage parameters, grants and comments."""
    owners = run("SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE oid = %s::regclass", live.sql)
    if owners != run(
        "SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE oid = %s::regclass", shadow.sql
    ):
        run(f"ALTER TABLE {shadow.sql} OWNER TO {owners[0][0]}")
    ((options,),) = run("SELECT reloptions FROM pg_class WHERE oid = %s::regclass", live.sql)
    if options:
        run(f"ALTER TABLE {shadow.sql} SET ({', '.join(options)})")
    there = {None, *_columns(run, shadow)}
    wanted = [grant for grant in run(_GRANTS, live.sql, live.sql) if grant[1] in there]
    given = run(_GRANTS, shadow.sql, shadow.sql)
    if sorted(map(str, wanted)) != sorted(map(str, given)):
        # Default privileges may have granted more on the shadow than on the table.
        for grantee in sorted({grant[3] for grant in given}):
            run(f"REVOKE ALL ON {shadow.sql} FROM {grantee}")
        for privilege, column, is_grantable, grantee in wanted:
            what = privilege if column is None else f"{privilege} ({quoted(column)})"
            option = " WITH GRANT OPTION" if is_grantable else ""
            run(f"GRANT {what} ON {shadow.sql} TO {grantee}{option}")
    for column, comment in run(_COMMENTS, live.sql, live.sql):
        if comment is not None and column in there:
            what = f"TABLE {shadow.sql}" if column is None else f"COLUMN {shadow.sql}.{quoted(column)}"
            run(f"COMMENT ON {what} IS {_literal(run, comment)}")


def _carry_columns(run: Run, live: TableName, shadow: TableName) -> None:
    """NOT NULL, defaults, storage, statistics targets and options of columns."""
    before = {row[0]: row[1:] for row in run(_COLUMN_SETTINGS, shadow.sql)}
    for name, *wanted in run(_COLUMN_SETTINGS, live.sql):
        if name not in before or tuple(wanted) == before[name]:
            continue
        is_required, target, options, storage, default = wanted
        was_required, _, _, was_stored, was_default = before[name]
        column = f"ALTER TABLE {shadow.sql} ALTER COLUMN {quoted(name)}"
        if is_required and not was_required:
            run(f"{column} SET NOT NULL")
        if target is not None:
            run(f"{column} SET STATISTICS {target}")
        if options:
            run(f"{column} SET ({', '.join(options)})")
        if storage != was_stored:
            run(f"{column} SET STORAGE {storage}")
        if default is not None and default != was_default:
            run(f"{column} SET DEFAULT {default}")


def _carry_security(run: Run, live: TableName, shadow: TableName) -> None:
    """Row level security: hidden rows stay hidden."""
    for name, is_permissive, command, roles, using, check, comment in run(_POLICIES, live.sql):
        parts = [
            f"CREATE POLICY {name} ON {shadow.sql} AS {'PERMISSIVE' if is_permissive else 'RESTRICTIVE'}",
            f"FOR {_COMMANDS[command]} TO {', '.join(roles)}",
            *([] if using is None else [f"USING ({using})"]),
            *([] if check is None else [f"WITH CHECK ({check})"]),
        ]
        run(" ".join(parts))
        if comment is not None:
            run(f"COMMENT ON POLICY {name} ON {shadow.sql} IS {_literal(run, comment)}")
    flags = "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = %s::regclass"
    ((is_enabled, is_forced),) = run(flags, live.sql)
    if is_enabled:
        run(f"ALTER TABLE {shadow.sql} ENABLE ROW LEVEL SECURITY")
    if is_forced:
        run(f"ALTER TABLE {shadow.sql} FORCE ROW LEVEL SECURITY")


def _carry_identity(run: Run, live: TableName, shadow: TableName, built: dict[str, str]) -> None:
    """The replica identity of logical replication, and the index that the table was clustered on."""
    ((identity,),) = run("SELECT relreplident::text FROM pg_class WHERE oid = %s::regclass", live.sql)
    chosen = (
        "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = %s::regclass AND {}"
    )
    if identity == "i":
        for (index,) in run(chosen.format("indisreplident"), live.sql):
            run(f"ALTER TABLE {shadow.sql} REPLICA IDENTITY USING INDEX {quoted(built[index])}")
    elif identity != "d":
        run(f"ALTER TABLE {shadow.sql} REPLICA IDENTITY {'FULL' if identity == 'f' else 'NOTHING'}")
    for (index,) in run(chosen.format("indisclustered"), live.sql):
        run(f"ALTER TABLE {shadow.sql} CLUSTER ON {quoted(built[index])}")


def _columns(run: Run, table: TableName) -> set[str]:
    rows = run(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped", table.sql
    )
    return {name for (name,) in rows}


def _literal(run: Run, text: str) -> str:
    literal: str = run("SELECT quote_literal(%s::text)", text)[0][0]
    return literal

"""What is read from a binlog, without a server: statements, and events as servers have written them."""

from __future__ import annotations

from foldlog.capture.from_mysql.statements import effect_of


def test_statements_of_the_binlog() -> None:
    for text, tables in (
        ("ALTER TABLE a RENAME TO b", {("s", "a"), ("s", "b")}),
        ("alter table `x`.`a` rename column p to q", set()),
        ("ALTER TABLE a RENAME INDEX i TO j, ADD KEY (c)", set()),
        ("ALTER TABLE a DROP PARTITION p0", {("s", "a")}),
        ('/*!50000 CREATE */ /* c */ TABLE IF NOT EXISTS "q""q" (a int)', {("s", 'q"q')}),
        ("CREATE OR REPLACE TABLE t SELECT 1", {("s", "t")}),
        ("RENAME TABLE a WAIT 5 TO b", {("s", "a"), ("s", "b")}),
        ("CREATE TEMPORARY TABLE t (a int)", set()),
        ("DROP TABLE a", set()),
    ):
        assert set(effect_of(text, "s").tables) == tables, text

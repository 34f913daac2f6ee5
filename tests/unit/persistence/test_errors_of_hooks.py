"""What a hook raised, and what it means."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from opsdk.errors import NotReadyError
from opsdk.persistence import find_not_ready, is_unique_violation


class PostgresError(Exception):
    """As asyncpg and psycopg report: the SQLSTATE is an attribute."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("duplicate key value violates unique constraint")
        self.sqlstate = sqlstate


class Psycopg2Error(Exception):
    def __init__(self, pgcode: str) -> None:
        super().__init__("duplicate key value violates unique constraint")
        self.pgcode = pgcode


class IntegrityError(Exception):
    """As pymysql, aiomysql and mysqlclient report: the number comes first."""


class MySQLConnectorError(Exception):
    def __init__(self, errno: int) -> None:
        super().__init__(f"{errno} (23000): Duplicate entry")
        self.errno = errno


class SQLAlchemyError(Exception):
    """SQLAlchemy's wrapper: what the driver raised is in `orig`."""

    def __init__(self, orig: BaseException) -> None:
        super().__init__("(driver) [SQL: insert …]")
        self.orig = orig


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table roles (uid text primary key, name text unique, scope text not null)")
        connection.execute("insert into roles values ('1', 'ops', 's')")
        yield connection


@pytest.mark.parametrize("values", ["('1', 'other', 's')", "('2', 'ops', 's')"])
def test_sqlite_reports_primary_keys_and_unique_columns(db: sqlite3.Connection, values: str) -> None:
    with pytest.raises(sqlite3.IntegrityError) as caught:
        db.execute(f"insert into roles values {values}")
    assert is_unique_violation(caught.value)


def test_another_violated_constraint_of_sqlite_is_no_unique_violation(db: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError) as caught:
        db.execute("insert into roles values ('2', 'other', null)")
    assert not is_unique_violation(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        PostgresError("23505"),
        Psycopg2Error("23505"),
        IntegrityError(1062, "Duplicate entry 'ops' for key 'name'"),
        MySQLConnectorError(1062),
        SQLAlchemyError(PostgresError("23505")),
        SQLAlchemyError(SQLAlchemyError(IntegrityError(1062, "Duplicate entry"))),
        ExceptionGroup("two rows", [PostgresError("23505"), IntegrityError(1062, "")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_drivers_are_recognised_without_importing_them(error: Exception) -> None:
    assert is_unique_violation(error)


def test_a_violation_is_found_in_the_cause_chain() -> None:
    error = RuntimeError("could not store")
    error.__cause__ = PostgresError("23505")
    assert is_unique_violation(error)


@pytest.mark.parametrize(
    "error",
    [
        PostgresError("23503"),
        IntegrityError(1452, "foreign key"),
        ValueError(1062),
        OSError(1062, "not a database"),
        ExceptionGroup("one of them is something else", [PostgresError("23505"), ValueError("other")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_are_no_unique_violations(error: Exception) -> None:
    assert not is_unique_violation(error)


def test_a_not_ready_error_is_found_in_the_cause_chain_and_in_groups() -> None:
    not_ready = NotReadyError("ScopeNotFound", "no scope")
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = not_ready
    assert find_not_ready(not_ready) is not_ready
    assert find_not_ready(wrapped) is not_ready
    assert find_not_ready(ExceptionGroup("tasks", [ExceptionGroup("inner", [wrapped])])) is not_ready


def test_a_group_with_a_failure_in_it_is_a_failure() -> None:
    assert find_not_ready(ExceptionGroup("tasks", [NotReadyError("A", "a"), ValueError("lost")])) is None


def test_only_explicit_causes_count() -> None:
    error = ValueError("while handling it")
    error.__context__ = NotReadyError("A", "a")
    assert find_not_ready(error) is None


def test_a_cycle_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert find_not_ready(first) is None
    assert not is_unique_violation(first)

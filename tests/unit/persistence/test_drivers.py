"""What real drivers raise, and how it is read; PostgreSQL is a server of our own, MySQL a packet of its protocol."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import aiosqlite
import asyncpg
import psycopg
import psycopg.errors
import pymysql.err
import pytest
import sqlalchemy.exc
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from opsdk.persistence import is_unique_violation
from postgres_server import PostgresServer, postgres_server

pytestmark = pytest.mark.anyio

TABLE = "create table roles (uid text primary key, name text unique, scope text not null)"
FIRST = "insert into roles values ('1', 'ops', 's')"
DUPLICATES = ["insert into roles values ('1', 'other', 's')", "insert into roles values ('2', 'ops', 's')"]
NO_SCOPE = "insert into roles values ('3', 'third', null)"


@pytest.fixture
def anyio_backend() -> str:
    """These drivers know asyncio only, and sockets need real time."""
    return "asyncio"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def mysql_error(number: int, sqlstate: str, message: str) -> pymysql.err.MySQLError:
    """What PyMySQL, and so aiomysql, raise for an error packet of the server."""
    packet = b"\xff" + struct.pack("<H", number) + b"#" + sqlstate.encode() + message.encode()
    with pytest.raises(pymysql.err.MySQLError) as caught:
        pymysql.err.raise_mysql_exception(packet)
    return caught.value


def test_pymysql() -> None:
    assert is_unique_violation(mysql_error(1062, "23000", "Duplicate entry 'ops' for key 'roles.name'"))
    assert not is_unique_violation(mysql_error(1048, "23000", "Column 'scope' cannot be null"))
    assert not is_unique_violation(mysql_error(2006, "HY000", "MySQL server has gone away"))


def test_pymysql_in_sqlalchemy() -> None:
    def wrapped(original: pymysql.err.MySQLError) -> sqlalchemy.exc.IntegrityError:
        return sqlalchemy.exc.IntegrityError("insert", {}, original)

    assert is_unique_violation(wrapped(mysql_error(1062, "23000", "Duplicate entry")))
    assert not is_unique_violation(wrapped(mysql_error(1048, "23000", "cannot be null")))


def test_psycopg(postgres: PostgresServer) -> None:
    database = postgres.new_database()
    with psycopg.connect(host=postgres.socket_folder, user="postgres", dbname=database, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(FIRST)
        for duplicate in DUPLICATES:
            with pytest.raises(psycopg.errors.UniqueViolation) as caught:
                connection.execute(duplicate.encode())
            assert is_unique_violation(caught.value)
        with pytest.raises(psycopg.errors.NotNullViolation) as other:
            connection.execute(NO_SCOPE)
        assert not is_unique_violation(other.value)


async def test_asyncpg(postgres: PostgresServer) -> None:
    database = postgres.new_database()
    connection = await asyncpg.connect(host=postgres.socket_folder, user="postgres", database=database)
    try:
        await connection.execute(TABLE)
        await connection.execute(FIRST)
        for duplicate in DUPLICATES:
            with pytest.raises(asyncpg.UniqueViolationError) as caught:
                await connection.execute(duplicate)
            assert is_unique_violation(caught.value)
        with pytest.raises(asyncpg.NotNullViolationError) as other:
            await connection.execute(NO_SCOPE)
        assert not is_unique_violation(other.value)
    finally:
        await connection.close()


async def test_aiosqlite() -> None:
    async with aiosqlite.connect(":memory:") as connection:
        await connection.execute(TABLE)
        await connection.execute(FIRST)
        for duplicate in DUPLICATES:
            with pytest.raises(aiosqlite.IntegrityError) as caught:
                await connection.execute(duplicate)
            assert is_unique_violation(caught.value)
        with pytest.raises(aiosqlite.IntegrityError) as other:
            await connection.execute(NO_SCOPE)
        assert not is_unique_violation(other.value)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'db'}"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.url(driver="psycopg", database=postgres.new_database())


def test_sqlalchemy(url: str) -> None:
    engine = create_engine(url)

    def execute(statement: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(statement))

    try:
        execute(TABLE)
        execute(FIRST)
        for duplicate in DUPLICATES:
            with pytest.raises(sqlalchemy.exc.IntegrityError) as caught:
                execute(duplicate)
            assert is_unique_violation(caught.value)
        with pytest.raises(sqlalchemy.exc.IntegrityError) as other:
            execute(NO_SCOPE)
        assert not is_unique_violation(other.value)
    finally:
        engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def async_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'db'}"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.url(driver="asyncpg", database=postgres.new_database())


async def test_asynchronous_sqlalchemy(async_url: str) -> None:
    engine = create_async_engine(async_url)

    async def execute(statement: str) -> None:
        async with engine.begin() as connection:
            await connection.execute(text(statement))

    try:
        await execute(TABLE)
        await execute(FIRST)
        for duplicate in DUPLICATES:
            with pytest.raises(sqlalchemy.exc.IntegrityError) as caught:
                await execute(duplicate)
            assert is_unique_violation(caught.value)
        with pytest.raises(sqlalchemy.exc.IntegrityError) as other:
            await execute(NO_SCOPE)
        assert not is_unique_violation(other.value)
    finally:
        await engine.dispose()


def test_a_database_that_is_away_is_no_conflict(tmp_path: Path) -> None:
    engine = create_engine(f"postgresql+psycopg://postgres@/db?host={tmp_path}")
    with pytest.raises(sqlalchemy.exc.OperationalError) as caught, engine.begin():
        pass
    assert not is_unique_violation(caught.value)

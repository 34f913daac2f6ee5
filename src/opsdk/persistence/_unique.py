"""Recognises the violation of a unique constraint, whichever database driver reports it. Imports none of them."""

from __future__ import annotations

from typing import Final, cast

__all__ = ["is_unique_violation"]

_SQLSTATE: Final = "23505"  # unique_violation in the SQL standard's class 23: asyncpg, psycopg, psycopg2
_SQLITE: Final = frozenset({1555, 2067, 2579})  # primary key, unique, rowid
_MYSQL: Final = frozenset({1062, 1586})  # duplicate entry, the same with the key's name


def is_unique_violation(error: BaseException) -> bool:
    """Whether `error` says that a unique constraint was violated.

    Looks at the error itself, at what it wraps (SQLAlchemy's `orig`) and at its `__cause__` chain. An exception group
    counts if all of it does.
    """
    return _is_violation(error, set())


def _is_violation(error: object, seen: set[int]) -> bool:
    if not isinstance(error, BaseException) or id(error) in seen:
        return False
    seen.add(id(error))
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(_is_violation(inner, seen) for inner in group.exceptions)
    return (
        _reported_here(error)
        or _is_violation(getattr(error, "orig", None), seen)
        or _is_violation(error.__cause__, seen)
    )


def _reported_here(error: BaseException) -> bool:
    if getattr(error, "sqlite_errorcode", None) in _SQLITE:
        return True
    if _SQLSTATE in {getattr(error, "sqlstate", None), getattr(error, "pgcode", None)}:
        return True
    if getattr(error, "errno", None) in _MYSQL and not isinstance(error, OSError):
        return True
    # MySQL drivers put the number first. Any error may begin with a number, so the DB-API class is asked for, too.
    is_integrity_error = any(base.__name__ == "IntegrityError" for base in type(error).__mro__)
    return is_integrity_error and bool(error.args) and error.args[0] in _MYSQL

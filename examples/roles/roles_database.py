"""The database: plain functions over SQLAlchemy, the same on SQLite and on PostgreSQL.

scopes  what roles may refer to
roles   one row per Role, by the object's uid; a role's name is unique in the whole database
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import JSON, Engine, String, UniqueConstraint, create_engine, delete, make_url, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

DEFAULT_URL: Final = "sqlite:///roles.db"


class Base(DeclarativeBase):
    pass


class ScopeRow(Base):
    __tablename__ = "scopes"
    __table_args__ = (UniqueConstraint("namespace", "name"),)

    uid: Mapped[str] = mapped_column(String(64), primary_key=True)
    namespace: Mapped[str] = mapped_column(String(253))
    name: Mapped[str] = mapped_column(String(253))
    permissions: Mapped[list[str]] = mapped_column(JSON)


class RoleRow(Base):
    __tablename__ = "roles"

    uid: Mapped[str] = mapped_column(String(64), primary_key=True)
    namespace: Mapped[str] = mapped_column(String(253))
    object: Mapped[str] = mapped_column(String(253))
    name: Mapped[str] = mapped_column(String(63), unique=True)
    scope: Mapped[str] = mapped_column(String(253), index=True)
    permissions: Mapped[list[str]] = mapped_column(JSON)
    active: Mapped[bool] = mapped_column(default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKey:
    """A Role as the cluster knows it."""

    namespace: str
    name: str
    uid: str


class Database:
    """Blocking calls: the operator makes them from worker threads."""

    def __init__(self, url: str = DEFAULT_URL) -> None:
        parsed = make_url(url)
        options: dict[str, int | str] = {}
        if parsed.get_backend_name() == "postgresql":
            # a server that does not answer must not hold a worker for longer than this
            options = {"connect_timeout": 5, "options": "-c statement_timeout=10s -c lock_timeout=5s"}
        self.engine: Engine = create_engine(
            parsed,
            connect_args=options,
            hide_parameters=True,  # error texts end up in status and in events
            pool_pre_ping=True,  # after a restart of the server the first try succeeds, not the second one
        )

    @classmethod
    def in_file(cls, path: Path) -> Database:
        return cls(f"sqlite:///{path}")

    def create_tables(self) -> None:
        """A production operator would run its migrations before it is deployed."""
        Base.metadata.create_all(self.engine)

    def close(self) -> None:
        self.engine.dispose()

    def ping(self) -> None:
        """Raises when the database is away."""
        with self.engine.connect() as connection:
            connection.execute(text("select 1"))

    # -- scopes

    def store_scope(self, uid: str, namespace: str, name: str, permissions: Iterable[str]) -> list[ObjectKey]:
        """Returns the roles that refer to it, read after it was committed."""
        with Session(self.engine) as session, session.begin():
            session.merge(ScopeRow(uid=uid, namespace=namespace, name=name, permissions=sorted(permissions)))
        return self._roles_of(namespace, name)

    def delete_scope(self, uid: str) -> list[ObjectKey]:
        """Returns the roles that referred to it."""
        with Session(self.engine) as session, session.begin():
            row = session.get(ScopeRow, uid)
            if row is None:
                return []
            namespace, name = row.namespace, row.name
            session.delete(row)
        return self._roles_of(namespace, name)

    def delete_other_scopes(self, uid: str, namespace: str, name: str) -> None:
        """Rows of that name that were left behind by objects that are gone."""
        stale = delete(ScopeRow).where(ScopeRow.namespace == namespace, ScopeRow.name == name, ScopeRow.uid != uid)
        with Session(self.engine) as session, session.begin():
            session.execute(stale)

    # -- roles

    def store_role(self, key: ObjectKey, name: str, scope: str, permissions: Iterable[str]) -> list[str] | None:
        """Store a role, in effect if its scope allows it; returns the same as `activate_role`.

        Raises:
            IntegrityError: The name is another role's.
        """
        with Session(self.engine) as session, session.begin():
            row = session.get(RoleRow, key.uid) or RoleRow(uid=key.uid)
            row.namespace, row.object = key.namespace, key.name
            row.name, row.scope, row.permissions = name, scope, sorted(permissions)
            session.add(row)
            return _activate(session, row)

    def activate_role(self, uid: str) -> list[str] | None:
        """Let a role take effect if its scope allows it.

        Returns:
            The permissions that the scope does not grant; None: there is no such scope.
        """
        with Session(self.engine) as session, session.begin():
            return _activate(session, session.get_one(RoleRow, uid))

    def delete_role(self, uid: str) -> None:
        with Session(self.engine) as session, session.begin():
            session.execute(delete(RoleRow).where(RoleRow.uid == uid))

    def delete_stale_role(self, uid: str, name: str) -> None:
        """Only if it still has the name: it may have been stored anew meanwhile."""
        with Session(self.engine) as session, session.begin():
            session.execute(delete(RoleRow).where(RoleRow.uid == uid, RoleRow.name == name))

    def holder_of(self, name: str, *, other_than: str) -> ObjectKey | None:
        """Whose row has the name."""
        with Session(self.engine) as session:
            row = session.scalar(select(RoleRow).where(RoleRow.name == name, RoleRow.uid != other_than))
            return None if row is None else ObjectKey(namespace=row.namespace, name=row.object, uid=row.uid)

    def active_roles(self) -> dict[str, str]:
        """Names of the roles that are in effect, and their scopes."""
        with Session(self.engine) as session:
            return {row.name: row.scope for row in session.scalars(select(RoleRow).where(RoleRow.active))}

    def roles(self) -> dict[str, ObjectKey]:
        """All roles by name."""
        with Session(self.engine) as session:
            return {
                row.name: ObjectKey(namespace=row.namespace, name=row.object, uid=row.uid)
                for row in session.scalars(select(RoleRow))
            }

    def _roles_of(self, namespace: str, scope: str) -> list[ObjectKey]:
        with Session(self.engine) as session:
            found = session.scalars(select(RoleRow).where(RoleRow.namespace == namespace, RoleRow.scope == scope))
            return [ObjectKey(namespace=row.namespace, name=row.object, uid=row.uid) for row in found]


def _activate(session: Session, role: RoleRow) -> list[str] | None:
    with session.no_autoflush:
        scope = session.scalar(
            select(ScopeRow).where(ScopeRow.namespace == role.namespace, ScopeRow.name == role.scope)
        )
    missing = None if scope is None else sorted(set(role.permissions) - set(scope.permissions))
    role.active = missing == []
    return missing

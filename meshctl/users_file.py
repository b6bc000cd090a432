"""The file of users that gateways without control read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mesh.connection_security import Mechanism
from mesh.scram import Verifier
from mesh.user_files import Users, UsersFileError, read_users, written
from mesh.whole_files import replace_file
from meshctl.failures import ExitCode, MeshctlError


@dataclass(frozen=True)
class UsersFile:
    """A file with its users, as they were read. Each change writes the whole file."""

    path: Path
    users: Users

    @classmethod
    def opened(cls, path: Path) -> UsersFile:
        """An absent file has no users, and comes with the first."""
        return cls.read(path) if path.exists() else cls(path, Users())

    @classmethod
    def read(cls, path: Path) -> UsersFile:
        try:
            return cls(path, read_users(path))
        except UsersFileError as error:
            raise MeshctlError(str(error), ExitCode.BAD_REQUEST) from None

    def put(self, name: str, verifiers: Mapping[Mechanism, Verifier]) -> None:
        self._write({**self.users.by_name, name: verifiers})

    def delete(self, name: str) -> None:
        known = self.users.by_name
        if name not in known:
            raise MeshctlError(f"there is no user {name} in {self.path}", ExitCode.NOT_FOUND)
        self._write({each: found for each, found in known.items() if each != name})

    def _write(self, by_name: Mapping[str, Mapping[Mechanism, Verifier]]) -> None:
        try:
            replace_file(self.path, written(replace(self.users, by_name=by_name)))
        except OSError as error:
            raise MeshctlError(f"{self.path} can't be written: {error.strerror}", ExitCode.BAD_REQUEST) from None

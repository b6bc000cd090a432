"""Contexts, as kubectl has them: named ways to reach a mesh, in a file that only its owner can read.

The file names files with certificates and tokens. It holds no secret itself; a token has a file of its own beside it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from meshctl.failures import ExitCode, MeshctlError

FOLDER_VARIABLE = "MESHCTL_CONFIG_FOLDER"
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
OWNER_ALONE = 0o077
"""Permissions that nobody but the owner of a secret's file may have."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token, and the authorities that sign control's certificate; None: those of the system."""

    token: str = field(repr=False)
    ca: bytes | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """A way to reach a mesh; what is empty is not said."""

    address: str = ""
    tls_folder: str = ""
    token_file: str = ""
    ca: str = ""
    issuer: str = ""
    client_id: str = ""
    """The issuer's name for this program, kept for the next login."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts, and the name of the one in use; empty for none."""

    current: str = ""
    contexts: Mapping[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise MeshctlError(f"no context is called {name!r} (known: {known})", ExitCode.NOT_FOUND)
        return self.contexts[name]

    def using(self, name: str) -> Contexts:
        self.get(name)
        return replace(self, current=name)

    def having(self, name: str, context: Context) -> Contexts:
        if not NAME.fullmatch(name):
            raise MeshctlError(f"{name!r} is no name of a context: letters, digits, . _ -", ExitCode.BAD_REQUEST)
        return replace(self, contexts={**self.contexts, name: context}, current=self.current or name)


def folder() -> Path:
    """The folder of the contexts and tokens."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "kafka-mesh"


def load() -> Contexts:
    """The contexts of this user; none if there is no file."""
    path = folder() / "contexts.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise _unusable(path, error.strerror or type(error).__name__) from None
    known = {each.name for each in fields(Context)}
    try:
        said = json.loads(text)
        contexts = {
            str(name): Context(**{key: str(value) for key, value in each.items() if key in known})
            for name, each in said["contexts"].items()
        }
        return Contexts(str(said.get("current", "")), contexts)
    except (ValueError, TypeError, AttributeError, LookupError):
        raise _unusable(path, "it is not what `meshctl context set` writes") from None


def save(contexts: Contexts) -> None:
    shown = {name: {k: v for k, v in asdict(each).items() if v} for name, each in contexts.contexts.items()}
    body = json.dumps({"current": contexts.current, "contexts": shown}, indent=2, ensure_ascii=False)
    write_secretly(folder() / "contexts.json", body + "\n")


def write_secretly(path: Path, text: str) -> None:
    """Writes a file that only its owner can read, whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)
            file.write(text)
        part.replace(path)
    except OSError as error:
        raise _unusable(path, error.strerror or type(error).__name__) from None


def read_token(path: Path) -> str:
    """The token in a file. Refuses a file that others can read."""
    try:
        if path.stat().st_mode & OWNER_ALONE:
            raise _unusable(path, f"others can read the token: chmod 600 {path}")
        token = path.read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        raise _unusable(path, "it is no token") from None
    except OSError as error:
        raise _unusable(path, error.strerror or type(error).__name__) from None
    if not token or len(token.split()) != 1:
        raise _unusable(path, "it holds no token, or more than one")
    return token


def read_ca(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unusable(path, error.strerror or type(error).__name__) from None


def _unusable(path: Path, reason: str) -> MeshctlError:
    return MeshctlError(f"{path} can't be used: {reason}", ExitCode.BAD_REQUEST)

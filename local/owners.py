"""The owners of certificates, as the command line names them: `FOLDER=ROLE/NAME@HOST,HOST`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MESH = "kafka-mesh"
"""The trust domain in the URIs of the authority on this machine."""
SERVERS = ("control", "router")
"""Roles whose members listen for gRPC: their certificates name hosts."""
ROLES = (*SERVERS, "gateway", "sidecar", "pipeline", "viewer", "operator", "admin")
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""The characters that SPIFFE allows, and the length that X.509 allows for a common name (RFC 5280, A.1)."""
FORM = "[FOLDER=]ROLE/NAME[@HOST,HOST...]"
UNKNOWN = "unknown"


class OwnerError(ValueError):
    """A text is not an owner; the message says which part is wrong."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A member or a person, and the folder of the certificate."""

    folder: str
    """Name of the folder among those of all owners."""
    role: str
    name: str
    hosts: tuple[str, ...] = ()
    """Host names and addresses under which others reach a server."""

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise OwnerError(f"owner {self}: no role is called {self.role!r} (known: {', '.join(ROLES)})")
        for word in (self.folder, self.name, *self.hosts):
            if not NAME.fullmatch(word) or not word.strip("."):
                raise OwnerError(f"owner {self}: {word!r} is not 1 to 64 letters, digits, . _ -")
        if bool(self.hosts) != (self.role in SERVERS):
            raise OwnerError(f"owner {self}: {' and '.join(SERVERS)} need hosts, and other roles have none")

    def __str__(self) -> str:
        hosts = f"@{','.join(self.hosts)}" if self.hosts else ""
        return f"{self.folder}={self.role}/{self.name}{hosts}"

    @property
    def uri(self) -> str:
        """The name in the certificate (SPIFFE ID)."""
        return f"spiffe://{MESH}/{self.role}/{self.name}"


def parse_owner(text: str) -> Owner:
    """The owner as `FORM` writes it; without FOLDER the folder is ROLE-NAME. OwnerError."""
    left, at, hosts = text.partition("@")
    folder, equals, identity = left.rpartition("=")
    role, slash, name = identity.partition("/")
    if not slash or (equals and not folder) or (at and not hosts):
        raise OwnerError(f"owner {text!r} is not {FORM}")
    return Owner(folder or f"{role}-{name}", role, name, tuple(hosts.split(",")) if hosts else ())


def owner_name(user: str) -> str:
    """A name of a user in the characters of a certificate's owner."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", user)[:64].strip(".-") or UNKNOWN


def joined(owners: Iterable[Owner]) -> str:
    """The owners in one text, as the command line takes them from the environment."""
    return " ".join(map(str, owners))

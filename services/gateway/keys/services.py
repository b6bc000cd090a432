"""The service of keys that the settings name: `file:PATH`, `vault:URL`, or that of a plug-in.

A plug-in is a package with an entry point in the group `kafka_mesh.key_services`. The entry point is a function that
gets the text behind the colon, and returns a `mesh.protection.keys.KeyService`.
"""

from __future__ import annotations

import ssl
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from mesh.protection.keys import KeyService

PLUG_INS: Final = "kafka_mesh.key_services"
OWN: Final = ("file", "vault")


class UnknownKeyServiceError(ValueError):
    """The settings name a service of keys that is not there."""


def check_service(named: str) -> str:
    """The setting as it is. UnknownKeyServiceError says what would be right."""
    kind, _, rest = named.partition(":")
    if named and (not rest or not kind):
        raise UnknownKeyServiceError(f"{named!r} is no service of keys: file:PATH, vault:URL, or PLUG-IN:TEXT")
    if kind == "file" and not Path(rest).is_absolute():
        raise UnknownKeyServiceError(f"{named!r}: the path of a key file begins with /")
    if kind == "vault" and not (rest.startswith(("https://", "http://")) and rest.count("/") >= 3):
        raise UnknownKeyServiceError(f"{named!r}: Vault's URL has the path of the engine, https://vault:8200/transit")
    return named


def key_service(named: str, token: str, ca: Path | None) -> KeyService:
    """UnknownKeyServiceError: no plug-in has this name."""
    kind, _, rest = named.partition(":")
    if kind == "file":
        from services.gateway.keys.key_file import KeyFile

        return KeyFile(Path(rest))
    if kind == "vault":
        from services.gateway.keys.vault import Vault

        return Vault(rest, token, ssl.create_default_context(cafile=ca))
    found = entry_points(group=PLUG_INS, name=kind)
    if not found:
        names = ", ".join((*OWN, *sorted(each.name for each in entry_points(group=PLUG_INS))))
        raise UnknownKeyServiceError(f"{kind!r} is no service of keys (known: {names})")
    service: KeyService = next(iter(found)).load()(rest)
    return service

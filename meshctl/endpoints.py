"""The addresses of the mesh: an option, an environment variable, the local mesh's endpoints.json, or the default port.

`kafka-mesh up` writes `.kafka-mesh/endpoints.json` ({"control": "127.0.0.1:7070", "gateway": ...}) into its checkout.
We look for it from the working directory upwards, then beside the virtual environment that this program runs in, so
that `.venv/bin/meshctl` finds its mesh from anywhere.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

STATE_FOLDER = ".kafka-mesh"
STATE_VARIABLE = "KAFKA_MESH_STATE_DIR"  # the state folder that `kafka-mesh up` uses
FILE_NAME = "endpoints.json"
CERTIFICATES_FOLDER = "certificates"  # beside that file
HIGHEST_PORT = 65535


class Service(StrEnum):
    """A part of the mesh that listens; the value is its key in endpoints.json."""

    CONTROL = "control"
    ROUTER = "router"
    GATEWAY = "gateway"
    SIDECAR = "sidecar"
    CONSOLE = "console"


DEFAULT_ADDRESSES = {
    Service.CONTROL: "127.0.0.1:7070",
    Service.ROUTER: "127.0.0.1:7071",
    Service.GATEWAY: "127.0.0.1:19092",
    Service.SIDECAR: "127.0.0.1:8084",
    Service.CONSOLE: "127.0.0.1:8090",
}


class EndpointsError(ValueError):
    """An address, or a file of addresses, that can't be read."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and where we have it from; the source is shown when nothing answers there."""

    address: str
    source: str
    certificates: Path | None = None
    """The folder with a folder for each certificate of the mesh on this machine; None: plaintext."""


def find(
    service: Service,
    *,
    option: str | None,
    variable: str,
    environment: Mapping[str, str] = os.environ,
    start: Path | None = None,
    prefix: Path | None = None,
) -> Endpoint:
    """The address of `service`: `option`, else environment `variable`, else endpoints.json, else the default."""
    if option:
        return Endpoint(option, "as given")
    if value := environment.get(variable):
        return Endpoint(value, f"from {variable}")
    for folder in _state_folders(environment, start or Path.cwd(), prefix or Path(sys.prefix)):
        path = folder / FILE_NAME
        if path.is_file():
            address = _read(path).get(service.value)
            if address is not None:
                certificates = folder / CERTIFICATES_FOLDER  # a mesh of an earlier version has none
                return Endpoint(address, f"from {path}", certificates if certificates.is_dir() else None)
    return Endpoint(DEFAULT_ADDRESSES[service], "the default")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port"; IPv6 hosts stand in brackets, which are taken off."""
    host, separator, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    well_formed = bool(separator and bare) and (":" not in host or bare != host)
    if not well_formed or not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= HIGHEST_PORT:
        raise EndpointsError(f"address {address!r}: expected host:port with a port from 1 to {HIGHEST_PORT}")
    return bare, int(port)


def _state_folders(environment: Mapping[str, str], start: Path, prefix: Path) -> Iterator[Path]:
    if named := environment.get(STATE_VARIABLE):
        yield Path(named)
    resolved = start.resolve()
    for folder in (resolved, *resolved.parents, prefix.parent):
        yield folder / STATE_FOLDER


def _read(path: Path) -> dict[str, str]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EndpointsError(
            f"{path} can't be read ({error}); remove it, or name the address with an option"
        ) from error
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise EndpointsError(
            f'{path}: expected {{"control": "host:port", ...}}; remove it, or name the address with an option'
        )
    return content

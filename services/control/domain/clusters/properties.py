"""The meaning of librdkafka's property names for the mesh: which shape every connection, and which are secret.

A registered cluster carries `producer_config` and `consumer_config`. Security and connection properties count for every
connection to the cluster, also for the gateway's. The other properties steer the mesh's own clients only: a client of
the gateway keeps its own acks, linger, group and so on. Control never stores a secret. The value of a secret property
is a reference, `${env:NAME}` or `${file:/path}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePosixPath

from mesh.cluster_properties import ALLOWED, SECRETS
from mesh.connection_security import (
    ConnectionSecurity,
    UnservedSecurityError,
    connection_properties,
    shapes_connections,
)
from mesh.secret_references import REFERENCE
from services.control.domain.errors import InvalidField

ADDRESSES = frozenset({"bootstrap.servers", "metadata.broker.list"})
"""The cluster's `bootstrap_servers` give the addresses, so that there is one place for them."""


def is_secret(name: str) -> bool:
    """Whether a property is secret. A name that looks like a secret counts: a misspelt one must not be in the log."""
    return name in SECRETS or "password" in name or "secret" in name


def client_only(names: Iterable[str]) -> list[str]:
    """Properties that do not shape clients' connections, sorted: acks, linger.ms, group.id, client.id and the like."""
    return sorted({name for name in names if not shapes_connections(name)})


def names_a_file(name: str) -> bool:
    """Whether the value of a property is the path of a file or folder: certificates, keys, a keytab."""
    return name.endswith((".location", ".keytab"))


def check_properties(field: str, properties: Mapping[str, str]) -> None:
    """Refuses properties that control must not take or store; `upstream/checks.py` has librdkafka's own checks."""
    for name, value in properties.items():
        place = f"{field}[{name}]"
        if name in ADDRESSES:
            raise InvalidField(place, "addresses of a cluster are said in bootstrap_servers; leave the property out")
        if is_secret(name) and not REFERENCE.fullmatch(value):
            raise InvalidField(place, "a secret is not stored here; refer to it as ${env:NAME} or ${file:/path}")
        if name not in ALLOWED:
            close = get_close_matches(name, ALLOWED, 1)
            raise InvalidField(
                place,
                "is not served: no cluster may have this property" + (f" (did you mean {close[0]}?)" if close else ""),
            )
        if not is_secret(name) and REFERENCE.search(value):
            raise InvalidField(place, f"only secrets are references ({', '.join(sorted(SECRETS))})")


@dataclass(frozen=True, slots=True)
class SecretPlaces:
    """The permitted places of clusters' secrets, certificates and keytabs.

    A caller names a place, and must not have control or gateways read other files or variables.
    """

    folder: str
    variables: str
    """The beginning of the names of environment variables that hold secrets."""

    def check(self, field: str, properties: Mapping[str, str]) -> None:
        """Refuses a reference or a path to any other place."""
        for name, value in properties.items():
            reference = REFERENCE.fullmatch(value)
            if reference is not None:
                kind, _, place = reference[1].partition(":")
            elif names_a_file(name):
                kind, place = "file", value
            else:
                continue
            if kind == "file" and not self._is_below(place):
                reason = f"{value} is not below {self.folder}, where files of clusters are (secrets_folder)"
                raise InvalidField(f"{field}[{name}]", reason)
            if kind == "env" and not place.startswith(self.variables):
                reason = f"{value} does not begin with {self.variables}, as secrets of clusters do (secret_variables)"
                raise InvalidField(f"{field}[{name}]", reason)

    def _is_below(self, path: str) -> bool:
        parts, folder = PurePosixPath(path).parts, PurePosixPath(self.folder).parts
        return ".." not in parts and parts[: len(folder)] == folder and len(parts) > len(folder)


def check_security(field: str, producer: Mapping[str, str], consumer: Mapping[str, str]) -> None:
    """Refuses settings that gateways can't serve: they would refuse every routing table with such a cluster."""
    for name, config in (("producer_config", producer), ("consumer_config", consumer)):
        _check_security(f"{field}.{name}", connection_properties(config, {}))
    _check_security(f"{field}.producer_config", connection_properties(producer, consumer))


def _check_security(field: str, properties: Mapping[str, str]) -> None:
    try:
        ConnectionSecurity.of(properties)
    except UnservedSecurityError as error:
        raise InvalidField(f"{field}[{error.name}]", error.reason) from None

"""What librdkafka property names mean to the mesh: which ones shape every connection, which ones only our own
clients, which are secret.

A registered cluster carries `producer_config` and `consumer_config`. Security and connection keys count for every
connection to the cluster, the gateway's included. The rest steers the mesh's own clients only: passing traffic keeps
each client's own acks, linger, group and so on. Secrets are never written down: their values are references,
`${env:NAME}` or `${file:/path}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mesh.connection_security import (
    ConnectionSecurity,
    UnservedSecurityError,
    connection_properties,
    shapes_connections,
)
from mesh.secret_references import REFERENCE
from services.control.domain.errors import InvalidField

SECRETS = frozenset(
    {
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    }
)
ADDRESSES = frozenset({"bootstrap.servers", "metadata.broker.list"})
"""Said by `bootstrap_servers` of the cluster, so that there is one place for it."""


def is_secret(name: str) -> bool:
    """Also names that only look like a secret: a misspelt one must not end up in the log either."""
    return name in SECRETS or "password" in name or "secret" in name


def client_only(names: Iterable[str]) -> list[str]:
    """Properties that do not touch passing traffic, sorted: acks, linger.ms, group.id, client.id and the like."""
    return sorted({name for name in names if not shapes_connections(name)})


def check_properties(field: str, properties: Mapping[str, str]) -> None:
    """Refuses what control must not take or store; what librdkafka itself says comes from `upstream/checks.py`."""
    for name, value in properties.items():
        if name in ADDRESSES:
            raise InvalidField(
                f"{field}[{name}]", "addresses of a cluster are said in bootstrap_servers; leave the property out"
            )
        if is_secret(name) and not REFERENCE.fullmatch(value):
            raise InvalidField(
                f"{field}[{name}]",
                "a secret is not stored here; refer to it as ${env:NAME} or ${file:/path}",
            )


def check_security(field: str, producer: Mapping[str, str], consumer: Mapping[str, str]) -> None:
    """Refuses what gateways can't serve: they would refuse every routing table with such a cluster."""
    try:
        ConnectionSecurity.of(connection_properties(producer, consumer))
    except UnservedSecurityError as error:
        config = "consumer_config" if error.name in consumer and error.name not in producer else "producer_config"
        raise InvalidField(f"{field}.{config}[{error.name}]", error.reason) from None

"""The librdkafka properties that a registered cluster may have: an allow-list, for every door that takes them.

The operator who registers a cluster decides how every service of the mesh makes clients for that cluster. Properties of
librdkafka can load a library (`plugin.library.paths`), run a command (`sasl.kerberos.kinit.cmd`) or write files
(`debug`, offset stores). A property that is not in this list is refused, in each configuration by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mesh.connection_security import (
    MECHANISM_NAMES,
    SERVED_BEARER_NAMES,
    SERVED_KERBEROS_NAMES,
    SERVED_TLS_NAMES,
    UNSECURED_TOKENS,
)

OF_CONNECTIONS: Final = frozenset(
    {
        "broker.address.family",
        "broker.address.ttl",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.ssl.certificate.verification",
        "https.ca.location",
        "https.ca.pem",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "socket.timeout.ms",
        UNSECURED_TOKENS,
        *MECHANISM_NAMES,
        *SERVED_BEARER_NAMES,
        *SERVED_KERBEROS_NAMES,
        *SERVED_TLS_NAMES,
    }
)
OF_CLIENTS: Final = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "batch.num.messages",
        "batch.size",
        "check.crcs",
        "client.id",
        "client.rack",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.timeout.ms",
        "enable.auto.commit",
        "enable.idempotence",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "isolation.level",
        "linger.ms",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "message.copy.max.bytes",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "metadata.max.age.ms",
        "partition.assignment.strategy",
        "partitioner",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "receive.message.max.bytes",
        "request.required.acks",
        "request.timeout.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "session.timeout.ms",
        "sticky.partitioning.linger.ms",
        "topic.metadata.refresh.interval.ms",
    }
)
ALLOWED: Final = OF_CONNECTIONS | OF_CLIENTS

SECRETS: Final = frozenset(
    {
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
    }
)
"""Their values are references, and no other property's value is."""


def allowed(config: Mapping[str, str]) -> dict[str, str]:
    """Without the properties that no cluster may have: a log of an older release may hold some."""
    return {name: value for name, value in config.items() if name in ALLOWED}

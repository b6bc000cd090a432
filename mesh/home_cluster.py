"""The home cluster, for those who write to the mesh's own topics there: how it is set, reached, and its topics made.

Blocking calls, each within a bound: for a thread of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented way

from mesh.secret_references import UnresolvedReferenceError, resolve_property

REQUEST_S = 5.0
"""Bound of one request to the home cluster."""
_MAY_BE_THERE = frozenset(
    {
        KafkaError.TOPIC_ALREADY_EXISTS,
        # who may only write is refused before anybody looks whether the topic is there
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class HomeAwayError(Exception):
    """The home cluster can't be asked or does not do it; the message says why."""


@dataclass(frozen=True, slots=True)
class OwnTopic:
    """A topic of the mesh as it is made where it is missing."""

    name: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HomeCluster:
    """Addresses, and librdkafka properties for security, which may be references to secrets."""

    bootstrap_servers: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def producer_for(self, topic: OwnTopic, client_id: str, properties: Mapping[str, Any]) -> Producer:
        """A producer, when the topic is there. HomeAwayError."""
        try:
            client = self._client(client_id)
            self._make(topic, client)
            return Producer({**client, **properties})
        except KafkaException as failure:
            raise HomeAwayError(f"{self}: {failure.args[0].str()}") from None
        except UnresolvedReferenceError as error:
            raise HomeAwayError(f"home_properties: {error}") from None

    def _client(self, client_id: str) -> dict[str, Any]:
        return {
            **{name: resolve_property(name, value) for name, value in self.properties.items()},
            "bootstrap.servers": ",".join(self.bootstrap_servers),
            "client.id": client_id,
            "logger": logging.getLogger("librdkafka.home"),
            "log_level": 0,  # whoever writes says once what is the matter
        }

    @staticmethod
    def _make(topic: OwnTopic, client: dict[str, Any]) -> None:
        new = NewTopic(topic.name, topic.partitions, -1, config=dict(topic.config))
        admin = AdminClient(client)  # it has to outlive its answer
        try:
            admin.create_topics([new], operation_timeout=REQUEST_S, request_timeout=REQUEST_S)[topic.name].result(
                2 * REQUEST_S
            )
        except TimeoutError:
            raise HomeAwayError(f"topic {topic.name} was not made within {2 * REQUEST_S:g} s") from None
        except KafkaException as failure:
            if failure.args[0].code() not in _MAY_BE_THERE:
                raise

    def __str__(self) -> str:
        return f"home cluster {','.join(self.bootstrap_servers)}"

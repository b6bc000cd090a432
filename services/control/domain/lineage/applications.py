"""The application that a Kafka client belongs to, by its principal and its client.id. No I/O.

The rule
1. An application is a principal and a client.id without the ends that differ between instances or between the clients
   of one instance. Ends are taken away until none is left, or nothing would be left:
   - what Kafka Streams adds: "-UUID-StreamThread-1-consumer" and all like it
   - "-UUID"
   - "-HASH-HASH" of a pod of a Kubernetes Deployment
   - a number behind "-", "_" or "."
   - "-producer", "-consumer" or "-admin", also with "_" or "."
2. A client.id that a library has by default names no application. Then the principal alone is the application.
3. Without a principal, such clients may be of any application (`is_shared`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mesh.routing import ANONYMOUS

LONGEST_CLIENT_ID: Final = 250
"""Characters: the time that ends take grows with the square of the length."""
_UUID: Final = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_SAFE: Final = "[bcdfghjklmnpqrstvwxz2456789]"
"""The letters and digits of names that Kubernetes makes."""
_ENDS: Final = re.compile(
    rf"(?:-{_UUID}-(?:StreamThread|StateUpdater|GlobalStreamThread|CleanupThread|admin).*"
    rf"|-{_UUID}"
    rf"|-(?=[a-z]*\d){_SAFE}{{8,10}}-{_SAFE}{{5}}"
    r"|[-_.]\d+"
    r"|[-_.](?:producer|consumer|admin))\Z"
)
_DEFAULTS: Final = re.compile(
    r"rdkafka|sarama|kgo|kafkajs|segmentio|(?:producer|adminclient|consumer-.*)-\d+|producer|consumer"
    r"|(?:kafka-python|aiokafka)-.*|"
)
"""The whole client.ids that Java, librdkafka, Sarama, franz-go, KafkaJS, kafka-python and aiokafka have by default."""


@dataclass(frozen=True, slots=True)
class Application:
    """Clients that count as one application; `client` is empty if no client.id names it."""

    principal: str
    client: str

    @property
    def is_shared(self) -> bool:
        """Whether the clients may be of several applications."""
        return not self.client and self.principal == ANONYMOUS

    @property
    def name(self) -> str:
        """ "User:alice/orders": one text for both, which `application_named` reads."""
        return f"{_escaped(self.principal)}/{_escaped(self.client)}"


def application_of(principal: str, client_id: str) -> Application:
    """The application of a client."""
    return Application(principal or ANONYMOUS, "" if _DEFAULTS.fullmatch(client_id) else without_ends(client_id))


def without_ends(name: str) -> str:
    """A client.id, or the name of a sidecar, without what differs between instances; a longer one stays as it is."""
    if len(name) > LONGEST_CLIENT_ID:
        return name
    while (end := _ENDS.search(name)) is not None and end.start() > 0:
        name = name[: end.start()]
    return name


def application_named(name: str) -> Application | None:
    """The application of a name; None if the text is no such name."""
    principal, slash, client = name.partition("/")
    if not slash or not principal or "/" in client:
        return None
    return Application(_plain(principal), _plain(client))


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _plain(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")

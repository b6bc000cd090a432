"""The ways of the judge's own client: which connection a request takes.

A broker hangs a client's state on ids, not on connections. With `spread`, each request of one client takes a door and a
connection of its own choosing, so state that hangs on the wrong thing shows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from judge.history import Place
from judge.protocol.apis import FIND_COORDINATOR, METADATA, Api
from judge.protocol.connection import Address, Connection, NoAnswerError, NotSentError
from judge.protocol.errors import KafkaError
from judge.protocol.schema import Message

METADATA_S = 5.0
"""How long leaders are believed."""
CONNECTIONS = 3
"""To each address, with `spread`."""


@dataclass(slots=True)
class Leaders:
    at: float
    by_place: dict[Place, Address]
    nodes: tuple[Address, ...]


@dataclass(slots=True)
class Roads:
    doors: tuple[Address, ...]
    client_id: str
    chance: random.Random
    spread: bool = False
    dial: Callable[[Address], Address] = lambda to: to
    """Maps an address to the address to connect to: a cable of the judge may be between."""
    timeout_s: float = 10.0
    door: int = 0
    """The one in use without `spread`; another one after an error."""
    _connections: dict[tuple[Address, int], Connection] = field(default_factory=dict)
    _leaders: dict[tuple[int, str], Leaders] = field(default_factory=dict)
    _coordinators: dict[tuple[int, int, str], Address] = field(default_factory=dict)
    last: str = ""
    """The address of the last request."""

    def to_leader(self, place: Place, api: Api, message: Message) -> Message:
        return self._asked(lambda door: self._leader(door, place), api, message)

    def to_coordinator(self, kind: int, key: str, api: Api, message: Message) -> Message:
        return self._asked(lambda door: self._coordinator(door, kind, key), api, message)

    def to_any(self, api: Api, message: Message) -> Message:
        return self._asked(lambda door: self.doors[door], api, message)

    def leader_connection(self, place: Place) -> Connection:
        """A new one, which the caller closes."""
        return Connection(self.dial(self._leader(self._choice(), place)), self.client_id, self.timeout_s)

    def knows(self, place: Place) -> bool:
        """Whether somebody is said to lead it."""
        try:
            self._leader(self._choice(), place)
        except (NotSentError, NoAnswerError):
            self.forget()
            return False
        return True

    def forget(self) -> None:
        """Forgets leaders and coordinators after an error, and asks another bootstrap address next."""
        self._leaders.clear()
        self._coordinators.clear()
        self.door += 1

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _choice(self) -> int:
        return self.chance.randrange(len(self.doors)) if self.spread else self.door % len(self.doors)

    def _asked(self, where: Callable[[int], Address], api: Api, message: Message) -> Message:
        try:
            return self._on(where(self._choice())).request(api, message)
        except (NotSentError, NoAnswerError):
            self.forget()
            raise

    def _on(self, to: Address) -> Connection:
        self.last = f"{to[0]}:{to[1]}"
        number = self.chance.randrange(CONNECTIONS) if self.spread else 0
        if (to, number) not in self._connections:
            self._connections[to, number] = Connection(self.dial(to), self.client_id, self.timeout_s)
        return self._connections[to, number]

    def _leader(self, door: int, place: Place) -> Address:
        known = self._leaders.get((door, place.topic))
        if known is None or time.monotonic() - known.at > METADATA_S:
            known = self._leaders[door, place.topic] = self._metadata(door, place.topic)
        if place not in known.by_place:
            self._leaders.clear()
            raise NotSentError(f"nobody leads {place}")
        return known.by_place[place]

    def _metadata(self, door: int, topic: str) -> Leaders:
        try:
            answer = self._on(self.doors[door]).request(METADATA, {"topics": [{"name": topic}]})
        except NoAnswerError as error:
            raise NotSentError(f"no metadata: {error}") from error
        nodes = {broker["node_id"]: (broker["host"], broker["port"]) for broker in answer["brokers"]}
        leaders = {
            Place(topic, partition["partition"]): nodes[partition["leader"]]
            for told in answer["topics"]
            for partition in told["partitions"] or ()
            if partition["leader"] in nodes
        }
        return Leaders(time.monotonic(), leaders, tuple(nodes.values()))

    def _coordinator(self, door: int, kind: int, key: str) -> Address:
        if (door, kind, key) not in self._coordinators:
            try:
                answer = self._on(self.doors[door]).request(FIND_COORDINATOR, {"key_type": kind, "keys": [key]})
            except NoAnswerError as error:
                raise NotSentError(f"no coordinator: {error}") from error
            [told] = answer["coordinators"]
            if told["error"]:
                raise KafkaError(told["error"], "FindCoordinator")
            self._coordinators[door, kind, key] = (told["host"], told["port"])
        return self._coordinators[door, kind, key]

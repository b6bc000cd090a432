"""A system under judgement: where clients go, where its records lie, and what can be done to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from judge.faults.fault import Fault
from judge.protocol.apis import CREATE_TOPICS
from judge.protocol.connection import Address, Connection

TOPIC_EXISTS = 36
CREATE_S = 60.0


@dataclass(slots=True)
class System:
    name: str
    doors: tuple[Address, ...]
    """Addresses that clients may bootstrap from; each leads to the same topics."""
    clusters: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)
    """The real clusters behind, by name; empty: the doors are the cluster."""
    faults: Sequence[Fault] = ()
    move: Callable[[str, str], None] | None = None
    """Sends a topic to a cluster, and returns when that is done."""
    revision: Callable[[str], int] = lambda via: 0

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.doors)

    @property
    def storage(self) -> Mapping[str, tuple[Address, ...]]:
        """Where the logs lie: each cluster behind the doors, or the doors themselves under no name."""
        return self.clusters or {"": self.doors}

    def create_topic(self, name: str, partitions: int) -> None:
        """On every cluster, so it can move."""
        for doors in self.storage.values():
            created(doors[0], name, partitions)


def created(door: Address, name: str, partitions: int) -> None:
    topic = {"name": name, "partitions": partitions, "replication": -1}
    deadline = time.monotonic() + CREATE_S
    while True:
        try:
            with Connection(door, "judge") as connection:
                [answer] = connection.request(CREATE_TOPICS, {"topics": [topic], "timeout_ms": 10_000})["topics"]
            if answer["error"] in (0, TOPIC_EXISTS):
                return
            said = f"error {answer['error']} {answer['message'] or ''}"
        except OSError as error:
            said = str(error)
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {name} was not created at {door[0]}:{door[1]}: {said}")
        time.sleep(0.5)

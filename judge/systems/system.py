"""A system under judgement: its addresses for clients, its logs, and its faults."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from judge.faults.fault import Fault
from judge.faults.stalls import Stalls
from judge.protocol.apis import CREATE_TOPICS, INCREMENTAL_ALTER_CONFIGS
from judge.protocol.connection import Address, Connection
from judge.systems.skipped_markers import SkippedMarkers

Edit = Callable[[random.Random], None]
TOPIC_EXISTS = 36
CREATE_S = 60.0
GROUP = 32
"""Of ConfigResource."""
SET = 0
SHARE_SETTINGS = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}


@dataclass(slots=True)
class System:
    name: str
    doors: tuple[Address, ...]
    """Addresses that clients may bootstrap from; each leads to the same topics."""
    clusters: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)
    """The real clusters behind, by name; empty: the doors are the cluster."""
    faults: Sequence[Fault] = ()
    stalls: Stalls = field(default_factory=Stalls)
    move: Callable[[str, str], int] | None = None
    """Sends a topic to a cluster, and returns the revision of that when it is done."""
    edits: Callable[[], Sequence[tuple[str, Edit]]] = lambda: ()
    """Other changes that an operator makes meanwhile, by name; the last one is rare."""
    owner: Callable[[str], str] = lambda topic: ""
    """The cluster that a topic's records and commits belong to now; empty: not known."""
    markers: SkippedMarkers = field(default_factory=SkippedMarkers)
    """The markers of transactions that the system's brokers said they skip."""
    share_session_s: float = 45.0
    """The time-out of members of share groups; the default is Kafka's."""
    revision: Callable[[str, float, float], int] = lambda via, start, end: 0
    """Which routing table ran at an address between two times of `time.monotonic`; 0: not known."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.doors)

    @property
    def storage(self) -> Mapping[str, tuple[Address, ...]]:
        """The clusters that hold the logs: each cluster behind the doors, or the doors themselves under no name."""
        return self.clusters or {"": self.doors}

    def create_topic(self, name: str, partitions: int, *, elsewhere: bool = False) -> None:
        """On every cluster, so it can move. `elsewhere`: a system with several clusters puts it on another one."""
        for doors in self.storage.values():
            created(doors[0], name, partitions)

    def share_from_the_start(self, group: str) -> None:
        """A share group begins with the first record, and sees committed records alone; on every cluster."""
        for doors in self.storage.values():
            _configured(doors[0], group, SHARE_SETTINGS)


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


def _configured(door: Address, group: str, settings: Mapping[str, str]) -> None:
    configs = [{"name": name, "operation": SET, "value": value} for name, value in settings.items()]
    message = {"resources": [{"type": GROUP, "name": group, "configs": configs}]}
    deadline = time.monotonic() + CREATE_S
    while True:
        try:
            with Connection(door, "judge") as connection:
                [answer] = connection.request(INCREMENTAL_ALTER_CONFIGS, message)["responses"]
            if not answer["error"]:
                return
            said = f"error {answer['error']} {answer['message'] or ''}"
        except OSError as error:
            said = str(error)
        if time.monotonic() > deadline:
            raise TimeoutError(f"share group {group} was not set up at {door[0]}:{door[1]}: {said}")
        time.sleep(0.5)

"""The plan of a run, chosen from its seed: topics, and processes with their clients and roles."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from judge.history import Guarantee

PARTITIONS = (1, 1, 2, 3, 3, 5, 12, 100)
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class Client(StrEnum):
    OWN = "own"
    LIBRDKAFKA = "librdkafka"
    JAVA = "java"


class Role(StrEnum):
    WRITER = "writer"
    TRANSACTOR = "transactor"
    READER = "reader"
    """Reads assigned partitions."""
    MEMBER = "member"
    """A member of the one group of its protocol."""
    SHARER = "sharer"
    """A member of a share group."""


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    moves: bool
    elsewhere: bool = False
    """The topic stays on another cluster than the other topics begin on, if the system has several."""


@dataclass(frozen=True, slots=True)
class Process:
    name: str
    role: Role
    client: Client
    guarantee: Guarantee = Guarantee.IDEMPOTENT
    spread: bool = False
    """Each request takes a connection and a door of its own choosing."""
    compression: str = "none"
    protocol: str = "classic"
    """The protocol of a group member."""
    late: bool = False
    """Writes of aborted transactions may arrive in the next one (KIP-890)."""


@dataclass(frozen=True, slots=True)
class Dose:
    """How much goes wrong."""

    lanes: int = 2
    """Faults at a time."""
    only: str = ""
    """Faults in whose names this expression is found; empty: all."""
    with_a_move: float = 0.5
    """The share of the faults that begin when a topic begins to move, or soon after."""
    edits: float = 0.25
    """The share of edits among the operator's changes; the rest are moves."""
    stalls: float = 0.2
    """The share of the moves in whose middle the home broker or the database stands still."""
    rare: float = 0.1
    """The share of the edits that is the last edit of the system's list."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    run: str
    topics: tuple[Topic, ...]
    processes: tuple[Process, ...]

    def committing(self) -> list[Process]:
        """Members of groups, and the judge's own readers, which commit without membership."""
        return [
            each
            for each in self.processes
            if each.role is Role.MEMBER or (each.role is Role.READER and each.client is Client.OWN)
        ]

    def sharing(self) -> list[Process]:
        return [each for each in self.processes if each.role is Role.SHARER]

    def steady(self) -> tuple[Topic, ...]:
        """Topics that stay: transactions have no move. If others move, these topics are on two clusters."""
        return tuple(topic for topic in self.topics if not topic.moves)

    def topics_of(self, process: Process) -> tuple[Topic, ...]:
        match process.role:
            case Role.TRANSACTOR | Role.SHARER:
                return self.steady()
            case _:
                return self.topics

    def chance(self, what: str) -> random.Random:
        """A source of its own for each process: one's choices do not depend on how fast others are."""
        return random.Random(f"{self.seed}/{what}")


def planned(
    seed: int, *, clients: Sequence[Client], moves: bool, late: bool, groups: Sequence[str] = ("classic", "consumer")
) -> Plan:
    chance = random.Random(seed)
    run = f"{seed:x}"[-8:]
    topics = [Topic(f"judge-{run}-{number}", chance.choice(PARTITIONS), moves and number < 2) for number in range(3)]
    if moves:
        partitions = random.Random(f"{seed}/elsewhere").choice(PARTITIONS)
        topics.append(Topic(f"judge-{run}-3", partitions, moves=False, elsewhere=True))
    libraries = [client for client in clients if client is not Client.OWN]

    def process(name: str, role: Role, client: Client, guarantee: Guarantee = Guarantee.IDEMPOTENT) -> Process:
        spread = client is Client.OWN and chance.random() < 0.5
        return Process(f"{name}-{client}", role, client, guarantee, spread, chance.choice(COMPRESSIONS))

    processes = [
        process(f"writer-{guarantee}", Role.WRITER, client, guarantee)
        for client in clients
        for guarantee in (Guarantee.PLAIN, Guarantee.IDEMPOTENT)
    ]
    for client in clients:
        processes.append(process("transactor", Role.TRANSACTOR, client, Guarantee.TRANSACTIONAL))
        processes.append(process("reader", Role.READER, client))
    if Client.OWN in clients:
        spreading = Process("spreader-own", Role.WRITER, Client.OWN, spread=True)
        processes += [spreading, Process("spreading-reader-own", Role.READER, Client.OWN, spread=True)]
    if late:
        processes.append(Process("late-own", Role.TRANSACTOR, Client.OWN, Guarantee.TRANSACTIONAL, late=True))
    for client in libraries:
        for protocol in groups:
            for number in (1, 2):
                name = f"member-{protocol}-{number}-{client}"
                processes.append(Process(name, Role.MEMBER, client, protocol=protocol))
    if Client.JAVA in clients:
        processes += [Process(f"sharer-{number}-java", Role.SHARER, Client.JAVA) for number in (1, 2)]
    return Plan(seed, run, tuple(topics), tuple(processes))

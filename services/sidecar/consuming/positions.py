"""Positions in partitions: where reading goes on, and what names such a position."""

from dataclasses import dataclass
from enum import Enum

from services.sidecar.records import Partition


class Edge(Enum):
    """An end of a partition; the values are Kafka's special timestamps in ListOffsets."""

    FIRST = -2
    LAST = -1


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The record with this offset, or the next one there is."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older; the end if there is none."""

    ms: int
    """Since the epoch."""


Place = Edge | AtOffset | AtTime


@dataclass(frozen=True, slots=True)
class Seek:
    """The place at which reading of one partition continues."""

    partition: Partition
    to: Place


@dataclass(frozen=True, slots=True)
class SeekTarget:
    """The place at which an instance continues, by an operator's order."""

    to: Place
    topic: str = ""
    """Only this topic; empty for all that the instance has."""
    partition: int | None = None
    """Only this partition, of the topic; None for all."""


@dataclass(frozen=True, slots=True)
class Position:
    """The offset that comes next."""

    partition: Partition
    offset: int

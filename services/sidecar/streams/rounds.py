"""The input and output of a worker's round: messages as records of a task, and results as one transaction."""

from __future__ import annotations

import heapq
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from confluent_kafka import Message

from services.sidecar.dead_letters.dead_letters import DeadLetters
from services.sidecar.delivering.batch import ReplyRecord
from services.sidecar.formats import FormatError, json_text
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.producing.transactional_client import NotWritten, TopicRecords
from services.sidecar.records import Delivered, Failed, Outcome, Outgoing, RawRecord, Reason, Verdict
from services.sidecar.streams.operators import Source
from services.sidecar.streams.plan import Part, Plan
from services.sidecar.streams.records import OperatorError, StreamRecord
from services.sidecar.streams.store import Store
from services.sidecar.streams.task import Task
from services.sidecar.streams.too_large import Origin, TooLarge


class TaskId(NamedTuple):
    """A task's identity: the topic that leads its part, and its partition."""

    lead: str
    partition: int

    def __str__(self) -> str:
        return f"{self.lead}-{self.partition}"


@dataclass(slots=True)
class OpenTask:
    """A task with its stores and partitions."""

    id: TaskId
    part: Part
    task: Task
    stores: Mapping[str, Store]
    waits_for_tables: set[str] = field(default_factory=set)
    """Topics that have to be read to their end before the other topics begin."""

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


class UnreadableError(Exception):
    """A record does not fit its format."""


def stream_record(raw: RawRecord, source: Source, reader: RecordReader) -> StreamRecord:
    """The record in the form for operators. UnreadableError; RegistryUnavailableError when the registry is silent."""
    part = "key"
    try:
        key = None if raw.key is None else _plain(reader.decode(source.key_format, "key", raw.key, raw.headers))
        part = "value"
        value = None
        if raw.value is not None:
            value = _plain(reader.decode(source.value_format, "value", raw.value, raw.headers))
    except FormatError as error:
        raise UnreadableError(f"{part} is {error}") from None
    return StreamRecord(key, value, max(raw.timestamp, 0), raw.headers, raw)


def _plain(decoded: object) -> Any:
    """A decoded value as values of Python; JSON text that was passed on unparsed is parsed here."""
    return json_text.loads(orjson.dumps(decoded)) if isinstance(decoded, orjson.Fragment) else decoded


def refused_by(entries: RoundEntries, refused: NotWritten) -> str:
    """The reason why a transaction was aborted, with the topic that caused it."""
    for entry, outcomes in zip(entries.entries, refused.outcomes, strict=True):
        if any(isinstance(one, Failed) and one.text == refused.cause.text for one in outcomes):
            return f"records for {entry.topic} were not written: {refused.cause.text}"
    return refused.cause.text


def by_time(messages: Iterable[Message]) -> Iterator[Message]:
    """Messages of several partitions by time; the order within each partition stays."""
    partitions: dict[str, list[Message]] = {}
    for message in messages:
        partitions.setdefault(message.topic() or "", []).append(message)
    if len(partitions) == 1:
        return iter(*partitions.values())
    return heapq.merge(*partitions.values(), key=lambda message: message.timestamp()[1])


def not_processed(error: OperatorError) -> Verdict:
    """The verdict on a record that code of the topology raised for."""
    trace = "".join(traceback.format_exception(error.cause))
    text = f"{error}\n{trace}"
    return Verdict(
        error.record.source, Outcome.DEAD_LETTER, Reason.BACKEND, text, first_failure=time.time_ns() // 1_000_000
    )


@dataclass(slots=True)
class Outcomes:
    """The outcomes of a round's records."""

    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """The next offset of each partition that the round read."""
    processed: list[RawRecord] = field(default_factory=list)
    refused: list[Verdict] = field(default_factory=list)
    replies: list[ReplyRecord] = field(default_factory=list)
    """Further records that the backend wants written."""
    skipped: int = 0


@dataclass(slots=True)
class RoundEntries:
    """The records that a round's transaction writes, topic by topic."""

    entries: list[TopicRecords]
    origins: list[list[Origin]]
    """The origin of each record of each entry. Changelogs, which are the last entries, have no origins."""
    changelogs: dict[int, Store]
    """The store of each entry that is a changelog, by the entry's number."""
    outputs: frozenset[int]
    """The numbers of the entries that other programs read."""


def entries_of(
    plan: Plan, tasks: Sequence[OpenTask], outcomes: Outcomes, dead_letters: DeadLetters, too_large: TooLarge
) -> RoundEntries:
    """The entries of a round: records that operators wrote, changes of stores, and dead letters."""
    own: dict[str, list[tuple[Outgoing, Origin]]] = {}
    others: dict[str, list[tuple[Outgoing, Origin]]] = {}
    for one in tasks:
        for target, record, encoded in one.task.written:
            assert encoded is not None
            topics = own if target.is_internal else others
            topics.setdefault(plan.topic_of(target), []).append((encoded, Origin(record.source)))
    for reply in outcomes.replies:
        others.setdefault(reply.topic, []).append((reply.record, Origin(reply.of, is_reply=True)))
    for verdict in outcomes.refused:
        for letter in dead_letters.of([verdict]):
            fitting = too_large.fitting(verdict.record, letter)
            own.setdefault(letter.topic, []).append((fitting.record, Origin(verdict.record, letter=fitting)))
    entries, origins = [], []
    for topic, records in (*others.items(), *own.items()):
        entries.append(TopicRecords(topic, [record for record, _ in records]))
        origins.append([origin for _, origin in records])
    outputs = frozenset(range(len(others)))
    changelogs: dict[int, Store] = {}
    for one in tasks:
        for name, overlay in one.task.stores.items():
            if changes := overlay.changes():
                changelogs[len(entries)] = one.stores[name]
                entries.append(
                    TopicRecords(
                        plan.changelog(name),
                        [Outgoing(key.to_kafka(), value, one.id.partition, 0, []) for key, value in changes.items()],
                    )
                )
    return RoundEntries(entries, origins, changelogs, outputs)


def before(
    records: Mapping[TaskId, Sequence[Message]], halting: TaskId, record: tuple[str, int, int]
) -> dict[TaskId, Sequence[Message]]:
    """All records except the record that halts its task (topic, partition, offset), and later records of that task."""
    kept: dict[TaskId, Sequence[Message]] = dict(records)
    mine = list(records[halting])
    places = [(one.topic(), one.partition(), one.offset()) for one in mine]
    kept[halting] = mine[: places.index(record)]
    return {id_: found for id_, found in kept.items() if found}


def keep(tasks: Sequence[OpenTask], round_: RoundEntries, written: Sequence[Sequence[Delivered]]) -> None:
    """Applies the changes of a committed transaction to the stores. sqlite3.Error when the disk fails."""
    ends = {
        id(store): max(delivered.offset for delivered in written[place]) + 1
        for place, store in round_.changelogs.items()
    }
    for one in tasks:
        for name, overlay in one.task.stores.items():
            store = one.stores[name]
            if id(store) in ends:
                store.apply(overlay.changes(), ends[id(store)])

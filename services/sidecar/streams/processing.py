"""Gives a round's records to their tasks, asks the backend, and collects the outcomes. Nothing is written here."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.consuming.partition_reader import raw_record
from services.sidecar.dead_letters.dead_letters import DeadLetters
from services.sidecar.delivering.deliverer import UndeliveredError
from services.sidecar.delivering.record_shower import unreadable
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.records import Verdict
from services.sidecar.streams.assignment import Assignment, RoundLimits
from services.sidecar.streams.backend import Backend
from services.sidecar.streams.operators import Hook
from services.sidecar.streams.plan import Plan
from services.sidecar.streams.records import OnError, OperatorError, StreamRecord, TopologyError
from services.sidecar.streams.rounds import OpenTask, Outcomes, TaskId, UnreadableError, not_processed, stream_record
from services.sidecar.streams.store_follower import Follower
from services.sidecar.streams.task import Encode
from services.sidecar.streams.too_large import TooLarge

ASK_SECONDS = 0.05
"""The time between two polls for the group while the backend is asked."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker."""

    limits: RoundLimits
    on_error: OnError
    on_unreadable: str
    """dead_letter, skip or stop."""
    dead_letters: DeadLetters
    max_value_bytes: int
    """The size of one entry of a store, at most."""
    transaction_seconds: float
    consumer: Mapping[str, Any]
    producer: Callable[[str], dict[str, Any]]
    """Properties of a producer with a transactional id."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The objects that all workers of a topology share."""

    plan: Plan
    follower: Follower
    reader: RecordReader
    encode: Encode
    backend: Backend | None
    audit: AuditTrail
    loop: asyncio.AbstractEventLoop
    """The event loop on which the backend is asked."""


class HaltError(Exception):
    """The topology has to stop in front of a record."""

    def __init__(self, id_: TaskId, record: tuple[str, int, int], reason: str) -> None:
        super().__init__(reason)
        self.id = id_
        self.record = record


class GivenUpError(Exception):
    """A round is given up: tasks were taken away, or the worker stops."""


class Processing:
    """The processing of one worker, on its thread."""

    def __init__(self, tools: Tools, options: WorkerOptions, too_large: TooLarge, stopping: threading.Event) -> None:
        self._tools = tools
        self._plan = tools.plan
        self._options = options
        self._too_large = too_large
        self._stopping = stopping

    def outcomes(
        self, assignment: Assignment, tasks: Sequence[OpenTask], records: Mapping[TaskId, Sequence[Message]]
    ) -> Outcomes:
        outcomes = Outcomes()
        for one in tasks:
            for message in records[one.id]:
                self._process(one, message, outcomes)
        for one in tasks:
            while (asked := one.task.asked()) is not None:
                self._ask(assignment, one, *asked, outcomes)
        return outcomes

    def _process(self, one: OpenTask, message: Message, outcomes: Outcomes) -> None:
        raw = raw_record(message)
        outcomes.offsets[raw.topic, raw.partition] = raw.offset + 1
        if oversize := self._too_large.of(raw):
            self._refuse(one, oversize.verdict, outcomes, halts=self._stops_at_errors and not oversize.is_reply)
            return
        try:
            record = stream_record(raw, one.part.sources[raw.topic], self._tools.reader)
        except UnreadableError as error:
            if self._options.on_unreadable == "skip":
                outcomes.skipped += 1
                return
            verdict = unreadable(raw, str(error))
            self._refuse(one, verdict, outcomes, halts=self._options.on_unreadable == "stop")
            return
        outcomes.processed.append(raw)
        try:
            one.task.process(raw.topic, record)
        except OperatorError as error:
            self._raised(one, error, outcomes)

    def _ask(
        self, assignment: Assignment, one: OpenTask, hook: Hook, records: list[StreamRecord], outcomes: Outcomes
    ) -> None:
        if self._tools.backend is None:
            raise TopologyError(
                f"Topology {self._plan.name!r} asks the backend, and nobody has said where that is: set backend_url"
            )
        asking = asyncio.run_coroutine_threadsafe(self._tools.backend.ask(hook.path, records), self._tools.loop)
        losses = assignment.losses
        while not asking.done():
            assignment.keep_alive()
            if self._stopping.is_set() or assignment.losses != losses:
                asking.cancel()
                raise GivenUpError
            concurrent.futures.wait((asking,), ASK_SECONDS)
        try:
            answers = asking.result()
        except (UndeliveredError, concurrent.futures.CancelledError):
            raise GivenUpError from None
        outcomes.replies += answers.replies
        for record, answer in zip(records, answers.of_records, strict=True):
            if answer.failed is not None:
                self._refuse(one, answer.failed, outcomes)
                continue
            try:
                one.task.answered(hook, record, answer.becomes)
            except OperatorError as error:
                self._raised(one, error, outcomes)

    def _raised(self, one: OpenTask, error: OperatorError, outcomes: Outcomes) -> None:
        self._refuse(one, not_processed(error), outcomes, halts=self._stops_at_errors)

    @property
    def _stops_at_errors(self) -> bool:
        return (self._plan.on_error or self._options.on_error) is OnError.STOP

    def _refuse(self, one: OpenTask, verdict: Verdict, outcomes: Outcomes, *, halts: bool = False) -> None:
        record = verdict.record
        if halts:
            reason = verdict.stacktrace.partition("\n")[0]
            place = (record.topic, record.partition, record.offset)
            raise HaltError(
                one.id, place, f"stopped in front of {record.topic}-{record.partition} offset {record.offset}: {reason}"
            )
        outcomes.refused.append(verdict)

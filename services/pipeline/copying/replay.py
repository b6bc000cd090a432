"""Carries out one replay: plans it, has its lanes copied, reports progress, and leaves no transaction open.

    draw the plan ──> report it ──> unfinished lanes as tasks ──> all at their ends: DONE
         ^                              │ a setback                    a CopyError: FAILED
         └──────────────────────────────┘                              stopped: CANCELLED

1. The reported progress is the committed notes of the groups on the target, so it is right whichever process copies.
2. Cancelled or killed tasks leave transactions open, and these would hold back readers of committed records. So a
   driver that stops or resumes a replay takes over the transactional id of each lane.
3. The groups stay when the replay is done. If the report of its end was lost, the replay is started again, and finds
   all records copied. Brokers delete the groups after offsets.retention.minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import structlog
from confluent_kafka import KafkaException, Producer

from mesh.rpc import replays
from services.pipeline.copying.errors import CopyError, RefusedError, SetbackError
from services.pipeline.copying.notes import Note
from services.pipeline.copying.offsets import shares
from services.pipeline.copying.origins import Archive
from services.pipeline.copying.planner import Drawing, Plan
from services.pipeline.copying.routes import group_of
from services.pipeline.copying.tasks import Access, LaneTask, Part
from services.pipeline.driver_protocol.orders import Order, Report
from services.pipeline.kafka.admin import CLIENT_ID
from services.pipeline.kafka.positions import Place, StreamError
from services.pipeline.spark.cancellation import unless_stopped

PROGRESS_S = 1.0
"""Seconds between two reports."""
MOST_ATTEMPTS = 5
"""Attempts in a row without progress."""
FIRST_PAUSE_S = 2.0
"""Seconds before the second attempt; the pause doubles before each further attempt."""
SWEEP_TIMEOUT_S = 50.0
SWEEPERS = 8
"""Transactional ids that are taken over in parallel."""
END_S = 8.0
"""Seconds for tasks to end after a cancel; later tasks are fenced."""

log = structlog.get_logger(__name__)


class Work(Protocol):
    """Runs tasks, on this machine or on a cluster."""

    def slots(self) -> int:
        """The number of tasks that run at once."""

    def run(self, tasks: Sequence[LaneTask], access: Access, *, dry_run: bool) -> dict[Place, int]:
        """Returns when all tasks are done; with dry_run, returns their counts. CopyError, SetbackError."""

    def cancel(self) -> None:
        """Cancels the running tasks; another thread may call it."""


class Replaying:
    """The carrying out of one replay."""

    def __init__(
        self,
        order: Order,
        archive: Archive | None,
        work: Work,
        report: Report,
        stopping: threading.Event,
        *,
        timeout_s: float,
        stall_timeout_s: float,
    ) -> None:
        self._order, self._replay = order, order.replay
        self._archive, self._work, self._report_to, self._stopping = archive, work, report, stopping
        self._timeout_s, self._stall_timeout_s = timeout_s, stall_timeout_s
        self._told: dict[Place, replays.ReplayPartition] = {}
        self._group = group_of(order.replay)

    def run(self) -> replays.ReplayState.ValueType:
        """Returns the final state, which was also reported."""
        attempts, best = 0, -1
        while True:
            try:
                return self._cancelled() if self._is_to_end() else self._attempt()
            except RefusedError as error:
                return self._end(replays.REPLAY_STATE_FAILED, str(error))
            except CopyError as error:
                return self._failed(str(error))
            except (SetbackError, StreamError) as error:
                log.warning("a copy is tried again", replay=self._replay.name, reason=str(error))
                reached = sum(each.position for each in self._told.values())
                attempts = 1 if reached > best else attempts + 1
                best = max(best, reached)
                if attempts >= MOST_ATTEMPTS:
                    return self._failed(str(error))
                self._tell(replays.REPLAY_STATE_RUNNING, f"tries again: {error}")
                self._stopping.wait(FIRST_PAUSE_S * 2 ** (attempts - 1))

    def _is_to_end(self) -> bool:
        return self._replay.cancelling or self._stopping.is_set()

    def _drawing(self) -> Drawing:
        self._archive = self._archive.anew() if self._archive is not None else None
        return Drawing(self._replay, self._order.clusters, self._archive, self._work.slots, self._timeout_s)

    def _attempt(self) -> replays.ReplayState.ValueType:
        drawing = self._drawing()
        plan = drawing.draw()
        self._tell_notes({place: part.note for place, part in plan.parts.items()}, _planned(drawing, plan))
        tasks = self._tasks(plan)
        if self._replay.spec.dry_run:
            counts = self._run(drawing, plan, tasks)
            return self._cancelled() if counts is None else self._counted(plan, counts)
        if tasks and self._run(drawing, plan, tasks) is None:
            return self._cancelled()
        notes = drawing.notes(plan.parts, stable=True)
        left = [place for place, part in plan.parts.items() if not notes.get(place, part.note).is_done]
        if left:
            raise SetbackError(f"{left[0][0]}/{left[0][1]} is not at its end, though its task is done")
        self._tell_notes(notes)
        copies = sum(each.records for each in self._told.values())
        return self._end(replays.REPLAY_STATE_DONE, f"{copies} {_plural(copies, 'record')} copied; {_ways(drawing)}")

    def _run(self, drawing: Drawing, plan: Plan, tasks: Sequence[LaneTask]) -> dict[Place, int] | None:
        """Returns the counts of the tasks, or None after a stop. Meanwhile reports progress."""
        access = Access(self._order.clusters, self._archive.origin if self._archive is not None else None)
        dry_run = self._replay.spec.dry_run
        return unless_stopped(
            self._stopping,
            lambda: self._work.run(tasks, access, dry_run=dry_run),
            self._work.cancel,
            end_s=END_S,
            every_s=PROGRESS_S,
            meanwhile=(lambda: None) if dry_run else (lambda: self._tell_progress(drawing, list(plan.parts))),
        )

    def _tell_progress(self, drawing: Drawing, places: Sequence[Place]) -> None:
        try:
            self._tell_notes(drawing.notes(places))
        except SetbackError as error:
            log.warning("the progress of a copy could not be read", replay=self._replay.name, reason=str(error))

    def _tasks(self, plan: Plan) -> list[LaneTask]:
        """The tasks of the unfinished lanes, the largest first."""
        lanes: dict[tuple[str, int], list[Part]] = {}
        for part in plan.parts.values():
            if not part.note.is_done:
                lanes.setdefault((part.route.target_cluster, part.note.lane), []).append(part)
        left = {key: sum(part.note.end - part.note.position for part in parts) for key, parts in lanes.items()}
        rates = shares(self._replay.spec.rate, left)
        copy = self._replay.spec.topic.SerializeToString()
        return [
            LaneTask(
                number=lane,
                transactional_id=self._transactional_id(lane),
                source=parts[0].route.source_cluster,
                target=target,
                parts=tuple(parts),
                copy=copy,
                rate=rates[target, lane],
                timeout_s=self._timeout_s,
                stall_timeout_s=self._stall_timeout_s,
            )
            for (target, lane), parts in sorted(lanes.items(), key=lambda item: -left[item[0]])
        ]

    def _transactional_id(self, lane: int) -> str:
        return f"{self._group}.lane-{lane}"

    # Ends

    def _counted(self, plan: Plan, counts: Mapping[Place, int]) -> replays.ReplayState.ValueType:
        for place, part in plan.parts.items():
            self._told[place] = _partition(place, part.note)
            self._told[place].planned = counts.get(place, 0)
        total = sum(counts.values())
        return self._end(
            replays.REPLAY_STATE_DONE, f"{total} {_plural(total, 'record')} would be copied", self._told.values()
        )

    def _cancelled(self) -> replays.ReplayState.ValueType:
        problem = self._swept()
        return self._end(replays.REPLAY_STATE_CANCELLED, f"stopped; what is copied stays so{problem}")

    def _failed(self, reason: str) -> replays.ReplayState.ValueType:
        return self._end(replays.REPLAY_STATE_FAILED, reason + self._swept())

    def _end(
        self, state: replays.ReplayState.ValueType, text: str, partitions: Iterable[replays.ReplayPartition] = ()
    ) -> replays.ReplayState.ValueType:
        self._tell(state, text, partitions)
        return state

    def _swept(self) -> str:
        """Ends the open transactions of tasks, and reports the position of each partition.

        Returns a text for the report on failure, else an empty text.
        """
        if self._replay.spec.dry_run:
            return ""
        try:
            drawing = self._drawing()
            notes = drawing.notes()
            lanes = {
                (drawing.routes[topic].target_cluster, note.lane)
                for (topic, _), note in notes.items()
                if not note.is_done  # a finished lane has committed all of its copies
            }
            with ThreadPoolExecutor(SWEEPERS) as pool:
                list(pool.map(lambda lane: self._sweep(*lane), sorted(lanes)))
            self._tell_notes(drawing.notes(notes, stable=True))
        except (SetbackError, StreamError, CopyError, KafkaException) as error:
            log.warning(
                "transactions of a stopped copy could not be ended", replay=self._replay.name, reason=str(error)
            )
            return "; what was just being written ends by itself within a minute"
        return ""

    def _sweep(self, cluster: str, lane: int) -> None:
        settings = {"client.id": CLIENT_ID, "transactional.id": self._transactional_id(lane)}
        producer: Any = Producer({**self._order.clusters[cluster], **settings})
        producer.init_transactions(SWEEP_TIMEOUT_S)

    # Reports

    def _tell_notes(self, notes: Mapping[Place, Note], text: str = "") -> None:
        """Reports the changed notes."""
        changed = []
        for place, note in notes.items():
            partition = _partition(place, note)
            if self._told.get(place) != partition:
                self._told[place] = partition
                changed.append(partition)
        if changed or text:
            self._tell(replays.REPLAY_STATE_RUNNING, text, changed)

    def _tell(
        self, state: replays.ReplayState.ValueType, text: str, partitions: Iterable[replays.ReplayPartition] = ()
    ) -> None:
        self._report_to(
            replays.ReportReplayRequest(
                name=self._replay.name,
                member=self._replay.member,
                partitions=partitions,
                state=state,
                description=text,
            )
        )


def _partition(place: Place, note: Note) -> replays.ReplayPartition:
    topic, partition = place
    return replays.ReplayPartition(
        topic=topic,
        partition=partition,
        start_offset=note.start,
        end_offset=note.end,
        position=note.position,
        records=note.records,
    )


def _planned(drawing: Drawing, plan: Plan) -> str:
    """A sentence about the plan."""
    offsets = sum(part.note.end - part.note.start for part in plan.parts.values())
    text = f"{offsets} {_plural(offsets, 'offset')} of {len(plan.parts)} {_plural(len(plan.parts), 'partition')}; "
    lost = f"; {plan.lost} of them are nowhere any more" if plan.lost else ""
    return text + _ways(drawing) + lost


def _ways(drawing: Drawing) -> str:
    ways = [str(route) for route in drawing.routes.values()]
    return ways[0] + (f" and {len(ways) - 1} more" if len(ways) > 1 else "")


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"

"""The destinations of a job's records, and the writes that each of them needs before its records count as done."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from services.sidecar.dead_letters.dead_letters import DeadLetters
from services.sidecar.dead_letters.record import has_lost_its_value, original, source_topic
from services.sidecar.delivering.batch import ReplyRecord, Settlement
from services.sidecar.records import Outcome, RawRecord, Verdict

Deliver = Callable[[Sequence[RawRecord], str, str], Coroutine[Any, Any, Settlement]]
"""Gives records of one partition, in their order, to a path of the backend (empty: its usual one), on an occasion (see
`Batch`), and returns when each of them has its last verdict."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The result for records that were given to their destination. The records are done once `writes` are written."""

    writes: Sequence[ReplyRecord] = ()
    failed: int = 0
    verdicts: Sequence[Verdict] = ()
    """The verdicts on the records, for the audit trail."""


class Destination(Protocol):
    """Takes records of one partition, in their order. `take` returns when only the writes are left to do."""

    async def take(self, records: Sequence[RawRecord]) -> Taken: ...


class Backend:
    """The backend of this sidecar. A record that fails again becomes a dead letter, if the job wants dead letters."""

    def __init__(
        self, deliver: Deliver, path: str, occasion: str, group: str, extension: str, *, keeps_failures: bool
    ) -> None:
        self._deliver = deliver
        self._path = path
        self._occasion = occasion
        self._dead_letters = DeadLetters(group, extension if keeps_failures else "")

    async def take(self, records: Sequence[RawRecord]) -> Taken:
        settlement = await self._deliver(records, self._path, self._occasion)
        failures = sum(one.outcome is Outcome.DEAD_LETTER for one in settlement.verdicts)
        return Taken(self._dead_letters.records_of(settlement), failures, settlement.verdicts)


class Topic:
    """A topic; for dead letters without a named topic, the topic that each dead letter came from."""

    def __init__(self, topic: str, extension: str) -> None:
        self._topic = topic
        self._extension = extension

    async def take(self, records: Sequence[RawRecord]) -> Taken:
        whole = [one for one in records if not has_lost_its_value(one)]
        writes = [original(one, self._topic or source_topic(one, self._extension)) for one in whole]
        return Taken(writes, failed=len(records) - len(whole))

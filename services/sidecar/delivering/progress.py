"""The progress of a batch: the next call to the backend, and the effect of its answer. No I/O, no waiting.

Theory of operation
1. A batch begins as one part. The backend gets the first part until each of its records has a verdict; then it gets the
   next part. So order is kept: no record is sent before all records in front of it are settled.
2. An answer says what became of each record. A status of this mesh settles its record, or has the record come again
   (RETRY). For answers with only `processed` or not, too many failures cause a repetition of the whole call, as in the
   original. Otherwise the failed records are given up at once, and the others are done.
3. A call that fails as a whole is repeated. When that may be a record's fault, the part is split in two after some
   failures, until the records at fault are alone.
4. A record that failed more often than the policy allows is given up. Failures of a backend that is not well do not
   count (`counts`): the caller of the backend decides that.
5. Between attempts at one part there is a pause, random up to a bound that doubles each time.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from services.sidecar.delivering.answers import Answer, Result, Said
from services.sidecar.delivering.batch import Batch, Deliverable, ReplyRecord, Settlement
from services.sidecar.delivering.failures import Blame, CallFailedError
from services.sidecar.delivering.policy import DeliveryPolicy, WhenExhausted
from services.sidecar.records import Outcome, Reason, Verdict

NOT_ASKED = Result(Said.NOT_PROCESSED)


@dataclass(frozen=True, slots=True)
class Ask:
    """One call to be made."""

    records: Sequence[Deliverable]
    attempt: int
    """1 for the first attempt; otherwise 1 plus the highest number of earlier sends of any of these records."""
    occasion: str = ""
    """The occasion of the batch."""


@dataclass(slots=True)
class _Part:
    """Places of records that go in one call, and how often in a row that failed."""

    places: list[int]
    failures: int = 0
    is_suspect: bool = False
    """Whether the part was split off a failed part: it is split again at its first failure."""


@dataclass(slots=True)
class _Standing:
    """The state of one record."""

    asked: int = 0
    failures: int = 0
    first_failure: int = 0
    last: Result = NOT_ASKED


class Progress:
    """The progress of one batch."""

    def __init__(
        self,
        batch: Batch,
        policy: DeliveryPolicy,
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        between: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._batch = batch
        self._policy = policy
        self._clock_ms = clock_ms
        self._between = between
        self._parts: deque[_Part] = deque()
        self._standings = [_Standing() for _ in batch.records]
        self._verdicts: list[Verdict | None] = [None] * len(batch.records)
        self._replies: list[Sequence[ReplyRecord]] = [()] * len(batch.records)
        self._common_replies: list[ReplyRecord] = []
        small = [place for place, record in enumerate(batch.records) if not self._is_too_large(place, record)]
        if small:
            self._parts.append(_Part(small))

    @property
    def ask(self) -> Ask | None:
        """The next call; None when all is said."""
        if not self._parts:
            return None
        places = self._parts[0].places
        attempt = max(self._standings[place].asked for place in places) + 1
        return Ask([self._batch.records[place] for place in places], attempt, self._batch.occasion)

    def settlement(self) -> Settlement:
        """Once nothing is left to ask."""
        verdicts = tuple(verdict for verdict in self._verdicts if verdict is not None)
        assert len(verdicts) == len(self._batch.records), "a batch is settled when each record has its verdict"
        replies = [reply for replies in self._replies for reply in replies]
        if self._common_replies:
            last = self._batch.records[-1].raw  # stands for all, as these replies belong to no record
            replies += [replace(reply, of=last) for reply in self._common_replies]
        return Settlement(self._batch.partition, verdicts, replies)

    def answered(
        self, answer: Answer, replies: Sequence[Sequence[ReplyRecord]], common: Sequence[ReplyRecord] = ()
    ) -> float:
        """The backend's word on the call; `replies` of each record, and of all together. Seconds to wait now."""
        part = self._parts.popleft()
        for place, result in zip(part.places, answer.results, strict=True):
            self._standings[place].asked += 1
            self._standings[place].last = result
        failed = sum(1 for result in answer.results if result.said is Said.NOT_PROCESSED)
        too_many = failed * 100 > self._policy.rollback_threshold * len(part.places)
        again = {
            place
            for place, result in zip(part.places, answer.results, strict=True)
            if not result.said.is_well and not self._settles(place, result.said, too_many)
        }
        rolls_back = too_many and any(self._standings[place].last.said is Said.NOT_PROCESSED for place in again)
        for place, result, own in zip(part.places, answer.results, replies, strict=True):
            if result.said is Said.PROCESSED and rolls_back:
                again.add(place)
            elif result.said.is_well:
                self._conclude(place, Outcome.SUCCESS)
                self._replies[place] = own
        if not rolls_back:
            self._common_replies += common
        if not again:
            return 0.0
        left = _Part([place for place in part.places if place in again], part.failures + 1, part.is_suspect)
        self._parts.appendleft(left)
        return self._pause(left.failures)

    def failed(self, failure: CallFailedError, *, counts: bool) -> tuple[float, int]:
        """The call brought no answer; `counts`: the backend is well, as far as is known.

        Seconds to wait now, and how many records were given up for it.
        """
        part = self._parts.popleft()
        part.failures += 1
        for place in part.places:
            standing = self._standings[place]
            standing.asked += 1
            standing.first_failure = standing.first_failure or self._clock_ms()
            standing.last = Result(Said.NOT_PROCESSED, failure.stacktrace)
        pause = self._pause(part.failures)
        if len(part.places) == 1:
            (place,) = part.places
            if counts and self._is_exhausted(place):
                self._give_up(place, Reason.OVERSIZE if failure.is_too_large else Reason.RETRIES)
                return 0.0, 1
            self._parts.appendleft(part)
            return pause, 0
        is_refused = failure.blame is Blame.RECORDS
        if counts and (is_refused or part.is_suspect or part.failures >= self._policy.isolate_after):
            half = (len(part.places) + 1) // 2
            halves = [_Part(part.places[:half], is_suspect=True), _Part(part.places[half:], is_suspect=True)]
            self._parts.extendleft(reversed(halves))
            return (0.0 if is_refused else self._pause(1)), 0
        self._parts.appendleft(part)
        return pause, 0

    def _is_too_large(self, place: int, record: Deliverable) -> bool:
        """If so, it has its verdict: the backend is never asked."""
        most, size = self._policy.max_record_bytes, record.shown.size
        if most is None or size <= most:
            return False
        standing = self._standings[place]
        standing.first_failure = self._clock_ms()
        standing.last = Result(
            Said.NOT_PROCESSED, f"key and value have {size} bytes; the backend is given {most} at most"
        )
        self._give_up(place, Reason.OVERSIZE)
        return True

    def _settles(self, place: int, said: Said, too_many: bool) -> bool:
        """Whether a result that is not well is the last word on its record; if so, it has its verdict."""
        standing = self._standings[place]
        if said is Said.DROP:
            self._conclude(place, Outcome.DROP)
            return True
        standing.first_failure = standing.first_failure or self._clock_ms()
        if said is Said.DEAD_LETTER or (said is Said.NOT_PROCESSED and not too_many):
            if self._policy.when_exhausted is WhenExhausted.RETRY:
                return False
            self._give_up(place, Reason.BACKEND)
            return True
        if not self._is_exhausted(place):
            return False
        self._give_up(place, Reason.RETRIES)
        return True

    def _is_exhausted(self, place: int) -> bool:
        """Counts one more failure of this record; whether the record has used its attempts."""
        self._standings[place].failures += 1
        if self._policy.when_exhausted is WhenExhausted.RETRY:
            return False
        return self._standings[place].failures > self._policy.max_retries

    def _give_up(self, place: int, reason: Reason) -> None:
        drops = self._policy.when_exhausted is WhenExhausted.DROP
        self._conclude(place, Outcome.DROP if drops else Outcome.DEAD_LETTER, reason)

    def _conclude(self, place: int, outcome: Outcome, reason: Reason | None = None) -> None:
        standing = self._standings[place]
        self._verdicts[place] = Verdict(
            self._batch.records[place].raw,
            outcome,
            reason,
            standing.last.stacktrace,
            standing.last.correlation_id,
            standing.last.traceability_id,
            standing.asked,
            standing.first_failure,
            standing.last.becomes,
        )

    def _pause(self, failures: int) -> float:
        bound = self._policy.retry_delay * 2.0 ** min(failures - 1, 32)
        return self._between(0.0, min(bound, self._policy.max_retry_delay))

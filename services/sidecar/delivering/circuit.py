"""The circuit breaker of a backend: it permits calls, and decides whether a failing record may be blamed.

Theory of operation
1. CLOSED: all may call. A set number of failures of the backend in a row opens the circuit.
2. OPEN: nobody calls for a pause that doubles each time, up to a bound. Then the circuit is HALF_OPEN: it permits one
   call at a time. A call that gets an answer closes the circuit; a call without an answer opens the circuit again.
3. Some failures may be the record's fault or the backend's. While other calls show that the backend is well, such a
   failure counts against the record and not here. But if several records in a row are given up for such failures, with
   no success between them, the circuit blames the backend until a record passes. A failure that is reported after such
   a turn may have begun before the turn: it counts against neither (`turns`).
4. If the backend refuses a record (400), the record is at fault. But many refusals in a row with no success between
   them may be the backend's own fault: then the circuit opens after each refusal, so that a topic does not drain into
   dead letters.
5. If one call gets a Retry-After, all callers of the backend wait.

No I/O and no waiting here; the clock comes from outside.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class CircuitState(Enum):
    """The numbers are those of the metric."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


@dataclass(frozen=True, slots=True)
class CircuitSettings:
    """Times in seconds."""

    open_after: int = 5
    """Failures of the backend in a row."""
    pause: float = 1.0
    max_pause: float = 30.0
    most_given_up: int = 5
    """Records in a row that may be given up for failures that could be the backend's."""
    most_refused: int = 100
    """Records in a row that the backend may refuse before the circuit opens after each."""


@dataclass(eq=False, slots=True)
class Permit:
    """To make one call; to be given back by `passed`, `answered`, `failed` or `abandoned`, once."""

    is_probe: bool
    is_open: bool = True


class Circuit:
    """The circuit of one backend."""

    def __init__(
        self,
        settings: CircuitSettings,
        clock: Callable[[], float],
        between: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._between = between
        self._state = CircuitState.CLOSED
        self._failures = 0
        self._given_up = 0
        self._refused = 0
        self._times_opened = 0
        self._not_before = -math.inf
        self._probe: Permit | None = None
        self.reason = ""
        """The reason of the last failure; empty while all is well."""
        self.turns = 0
        """How often the circuit began, or ceased, to blame the backend."""
        self.passes = 0
        """The number of successful calls. If the number grows, the backend takes other records."""

    @property
    def state(self) -> CircuitState:
        if self._state is CircuitState.OPEN and self._clock() >= self._not_before:
            self._state = CircuitState.HALF_OPEN
        return self._state

    @property
    def believes_in_poison(self) -> bool:
        """Whether a record may still be blamed for a failure that could be the backend's."""
        return self._given_up < self._settings.most_given_up

    def wait(self) -> float:
        """Seconds until the next call may begin; infinite while another one finds out."""
        if (left := self._not_before - self._clock()) > 0:
            return left
        if self.state is CircuitState.HALF_OPEN and self._probe is not None:
            return math.inf
        return 0.0

    def begin(self) -> Permit:
        """Only when there is nothing to wait for."""
        permit = Permit(self.state is CircuitState.HALF_OPEN)
        if permit.is_probe:
            self._probe = permit
        return permit

    def passed(self, permit: Permit) -> None:
        """The backend processed the call."""
        self._close(permit)
        if not self.believes_in_poison:
            self.turns += 1
        self._given_up = self._refused = 0
        self.passes += 1

    def answered(self, permit: Permit) -> None:
        """The backend seems to be well, although it did not take the records."""
        self._close(permit)

    def failed(self, permit: Permit, reason: str) -> None:
        """The backend failed."""
        self._return(permit)
        self.reason = reason
        if self._state is CircuitState.OPEN:
            return
        self._failures += 1
        if permit.is_probe or self._failures >= self._settings.open_after:
            self._open()

    def busy(self, permit: Permit, seconds: float, reason: str) -> None:
        """The backend asks for a pause, which is no failure."""
        self._return(permit)
        self.reason = reason
        self._not_before = max(self._not_before, self._clock() + seconds)

    def abandoned(self, permit: Permit) -> None:
        """The outcome of the call is unknown. Does nothing for a permit that was given back."""
        self._return(permit)

    def gave_up(self, records: int) -> None:
        """Records were blamed for failures that could have been the backend's."""
        believed = self.believes_in_poison
        self._given_up += records
        if believed and not self.believes_in_poison:
            self.turns += 1

    def refused(self, records: int, reason: str) -> None:
        """The backend refused records for good; an `answered` came before."""
        self._refused += records
        if records and self._refused > self._settings.most_refused and self._state is not CircuitState.OPEN:
            self._times_opened = self._refused - self._settings.most_refused - 1
            self.reason = f"it has refused {self._refused} records in a row, and taken none: {reason}"
            self._open()

    def _close(self, permit: Permit) -> None:
        self._return(permit)
        self._failures = self._times_opened = 0
        if self._state is not CircuitState.CLOSED:
            self._state, self._not_before = CircuitState.CLOSED, -math.inf
        self.reason = ""

    def _open(self) -> None:
        bound = min(self._settings.pause * 2.0 ** min(self._times_opened, 32), self._settings.max_pause)
        self._times_opened += 1
        self._failures = 0
        self._state = CircuitState.OPEN
        # never none at all: jitter is there to part sidecars from each other, not to call at once
        self._not_before = max(self._not_before, self._clock() + self._between(bound / 2, bound))

    def _return(self, permit: Permit) -> None:
        permit.is_open = False
        if self._probe is permit:
            self._probe = None

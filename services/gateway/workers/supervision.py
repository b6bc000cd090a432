"""The decisions of the supervisor: whether all workers are ready, and when an ended worker is started again.

No I/O; times are monotonic seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from mesh.lifecycle import Phase
from mesh.pauses import pause

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STEADY_S = 60.0
"""If a worker was ready for so long, its earlier failures no longer count."""


@dataclass(slots=True)
class _Post:
    """One worker, over all its processes."""

    phase: Phase = Phase.STARTING
    reason: str = "starting"
    ready_since: float | None = None
    failures: int = 0
    """Failures in a row."""


@dataclass(frozen=True, slots=True)
class Again:
    """Start the worker again after a pause."""

    after_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The gateway can't start."""

    reason: str


@dataclass(slots=True)
class Supervision:
    """See above."""

    workers: Iterable[int]
    complete: bool = False
    """All have been ready."""
    stopping: bool = False
    _posts: dict[int, _Post] = field(init=False)

    def __post_init__(self) -> None:
        self._posts = {worker: _Post() for worker in self.workers}

    @property
    def trouble(self) -> str:
        """Why the gateway as a whole is not ready; empty when it is."""
        return "; ".join(
            f"worker {worker} {post.reason or post.phase.value}"
            for worker, post in self._posts.items()
            if post.phase is not Phase.READY
        )

    def is_ready(self, worker: int) -> bool:
        return self._posts[worker].phase is Phase.READY

    def begun(self, worker: int) -> None:
        """A process of this worker was started."""
        post = self._posts[worker]
        post.phase, post.reason, post.ready_since = Phase.STARTING, "starting", None

    def told(self, worker: int, phase: Phase, reason: str, now: float) -> None:
        """The worker has reported its phase."""
        post = self._posts[worker]
        post.phase, post.reason = phase, reason
        if phase is Phase.READY and post.ready_since is None:
            post.ready_since = now
        self.complete = self.complete or not self.trouble

    def ended(self, worker: int, how: str, now: float) -> Again | GiveUp | None:
        """The process of the worker has ended. None: the end was expected."""
        post = self._posts[worker]
        steady = post.ready_since is not None and now - post.ready_since >= STEADY_S
        post.phase, post.reason, post.ready_since = Phase.STOPPED, f"has ended ({how})", None
        if self.stopping:
            return None
        if not self.complete:
            return GiveUp(f"worker {worker} has ended ({how}) before all were ready; its own log lines say why")
        post.failures = 1 if steady else post.failures + 1
        return Again(pause(post.failures, FIRST_PAUSE_S, LONGEST_PAUSE_S))

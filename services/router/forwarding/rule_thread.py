"""The thread of one rule: one session after another, from `start` to `stop`. A new order ends the session, too."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.rpc import routing
from services.router.forwarding.orders import Progress, RunRule

SHORTEST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""Seconds between two sessions: doubled with each setback, until a session moves something."""


@dataclass(frozen=True, slots=True)
class World:
    """The facts about the mesh that workers know."""

    mesh_id: str = ""
    clusters: Mapping[str, routing.ClusterSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The task of the worker; replaced as a whole."""

    order: RunRule
    world: World


class RuleThread(ABC):
    """Never ends by itself. Sessions hand nothing over to each other but what the worker keeps."""

    def __init__(self, order: RunRule, world: World, kind: str) -> None:
        """`kind`: the beginning of the thread's name."""
        self.rule_id = order.spec.record_rule_id
        self._thread = threading.Thread(target=self._run, name=f"{kind}-{self.rule_id}", daemon=True)
        self._wanted = Wanted(order, world)
        self._changed = threading.Event()
        self._stopping = self._forget = False
        self._problem = ""
        self._setbacks = 0

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end that `stop` asked for."""
        self._thread.join(timeout)

    def want(self, order: RunRule | None, world: World) -> None:
        """From now on this; no order: the one there is, in another world."""
        wanted = Wanted(order or self._wanted.order, world)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    def stop(self, *, forget: bool = False) -> None:
        """Ends when no write is on its way. `forget`: the rule is no more, and what it remembers goes."""
        self._forget = forget
        self._stopping = True
        self._changed.set()

    @abstractmethod
    def progress(self) -> Progress:
        """How far the rule is; from any thread."""

    @abstractmethod
    def _session(self, wanted: Wanted) -> None:
        """Works until `_changed` is set. Errors end the session."""

    @abstractmethod
    def _moved(self) -> int:
        """A number that grows as long as sessions move something."""

    @abstractmethod
    def _settle(self, error: Exception) -> bool:
        """Explains the error of a session in `_problem` and in the log. Whether the next session begins at once."""

    @abstractmethod
    def _forget_all(self) -> None:
        """The rule is no more. The last session is over."""

    def _run(self) -> None:
        pause = SHORTEST_PAUSE
        while True:
            self._changed.clear()
            if self._stopping:  # asked behind `clear`: a caller that sets both is never overlooked
                break
            before = self._moved()
            try:
                self._session(self._wanted)
            except Exception as error:  # noqa: BLE001  # a fault of ours in one rule ends neither it nor the others
                if self._settle(error):
                    continue
                self._setbacks += 1
                pause = SHORTEST_PAUSE if self._moved() > before else min(2 * pause, LONGEST_PAUSE)
                self._changed.wait(pause)
            else:
                pause = SHORTEST_PAUSE
        if self._forget:
            self._forget_all()

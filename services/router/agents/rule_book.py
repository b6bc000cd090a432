"""The record rules that are in force, as far as this router knows the log. For one event loop only; no I/O.

As the bulletin, the rule book only moves forward: a second reading of the log takes no rule back to an earlier state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mesh.record_rules import RecordRules
from mesh.routing import UpstreamCluster


@dataclass(frozen=True, slots=True)
class RulePage:
    """Record rules and the clusters that they name, after one event of the log."""

    rules: RecordRules = field(default_factory=dict)
    clusters: Mapping[str, UpstreamCluster] = field(default_factory=dict)
    position: int = -1


class RuleBook:
    """The latest page; an empty one until the log has been read once to its end."""

    def __init__(self) -> None:
        self.latest = RulePage()
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is called after each change from now on."""
        self._listeners.append(listener)

    def post(self, page: RulePage) -> None:
        """Puts a page up, unless it is older than what is up already, or says the same."""
        before = self.latest
        if page.position < before.position:
            return
        self.latest = page
        if before.position < 0 or page.rules is not before.rules or page.clusters is not before.clusters:
            for listener in self._listeners:
                listener()

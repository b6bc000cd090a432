"""The groups that have series of their own at /metrics: the first ones, within a budget. Others count as `other`."""

from typing import Final

from services.gateway import metrics
from services.gateway.requests.uses import shortened

MOST_GROUPS: Final = 200
OTHER: Final = "other"


class GroupNames:
    """Names of groups, as labels have them."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, group: str) -> str:
        group = shortened(group)
        if group in self._known:
            return group
        if len(self._known) >= MOST_GROUPS:
            return OTHER
        self._known.add(group)
        return group

    def count_rebalance(self, group: str) -> None:
        """A member has heard of a new generation or assignment."""
        metrics.group_rebalances.labels(self.label(group)).inc()

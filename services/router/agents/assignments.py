"""Which record rules this router runs, and the orders for its worker process that follow. No I/O.

A rule belongs to a partition of the work topic, by a hash of its id that every router computes alike; the router that
is assigned the partition runs the rule. The class remembers the orders that were sent, so that it only sends
differences; a new worker process gets all orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from zlib import crc32

from mesh.record_rules import RecordRule
from mesh.routing.codec import cluster_to_proto
from services.router.agents.rule_book import RulePage
from services.router.forwarding.orders import Clusters, GroupSync, Order, RemoveRule, Rewind, RunRule, StopRule


def partition_of(rule_id: str, partitions: int) -> int:
    """The partition of the work topic whose owner runs the rule."""
    return crc32(rule_id.encode()) % partitions


class Assignments:
    """The difference between the rules that are to run here and the orders that were sent to the worker."""

    def __init__(self) -> None:
        self._page = RulePage()
        self._owns: Callable[[str], bool] = lambda _: False
        self._mesh_id = ""
        self._told: dict[str, RunRule] = {}
        self._told_clusters: Clusters | None = None
        self.ending: set[str] = set()
        """Rules that the router ordered the worker to stop, and whose end the worker has not reported."""

    @property
    def running(self) -> Set[str]:
        """Ids of the rules that are to run here."""
        return {rule_id for rule_id in self._page.rules if self._owns(rule_id)}

    @property
    def busy(self) -> bool:
        """Whether one of them is not paused."""
        return any(not self._page.rules[rule_id].paused for rule_id in self.running)

    def follow(self, page: RulePage) -> None:
        """The log says something else."""
        self._page = page

    def own(self, owned: Set[int], partitions: int, mesh_id: str) -> None:
        """These partitions of so many are this router's."""
        self._owns = lambda rule_id: partition_of(rule_id, partitions) in owned
        self._mesh_id = mesh_id

    def begin_anew(self) -> None:
        """The worker process is another one; the one before has ended, and all of its rules with it."""
        self._told, self._told_clusters, self.ending = {}, None, set()

    def ended(self, rule_id: str) -> None:
        """The worker has let go of a rule."""
        self.ending.discard(rule_id)

    def orders(self) -> Iterator[Order]:
        """The orders that the worker needs now. A second call gives none."""
        running = self.running
        for rule_id in sorted(self._told.keys() - running):
            del self._told[rule_id]
            self.ending.add(rule_id)
            yield StopRule(rule_id) if rule_id in self._page.rules else RemoveRule(rule_id)
        if running and (clusters := self._clusters()) != self._told_clusters:
            self._told_clusters = clusters
            yield clusters
        for rule_id in sorted(running):
            order = _order_of(self._page.rules[rule_id])
            if self._told.get(rule_id) != order:
                self._told[rule_id] = order
                yield order

    def _clusters(self) -> Clusters:
        known = self._page.clusters.values()
        return Clusters(tuple(cluster_to_proto(cluster).spec for cluster in known), self._mesh_id)


def _order_of(rule: RecordRule) -> RunRule:
    return RunRule(
        spec=rule.spec,
        revision=rule.revision,
        created=rule.created,
        paused=rule.paused,
        rewinds=tuple(Rewind(each.revision, each.start) for each in rule.rewinds),
        syncs=tuple(GroupSync(each.revision, tuple(sorted(each.groups))) for each in rule.group_syncs),
    )

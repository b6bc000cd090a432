"""The reports about clusters that have standbys: how far these are acknowledged, and whether they can be reached."""

import asyncio

from mesh.rpc import acknowledgements, discovery
from services.gateway.downstream.answers import Answers
from services.gateway.downstream.mesh import Mesh

EVERY_S = 1.0
"""If a gateway is killed, the loss of a fail-over may miss the acknowledgements of its last second."""


class StandbyReports:
    """See above."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._down: dict[str, float] = {}
        """The clusters with a standby that can't be reached, and since when."""

    async def run(self, answers: Answers) -> None:
        """Reports to one router: all ends at first, then what changes."""
        self.send(answers, everything=True)
        while True:
            await asyncio.sleep(EVERY_S)
            self.send(answers)

    def send(self, answers: Answers, *, everything: bool = False) -> None:
        """Reports now what has changed. A router hears it before all later answers."""
        logs = self._mesh.memory.acknowledged
        if not logs.by_topic:  # the router may be of an older release
            return
        report = acknowledgements.StandbyReport(logs=logs.report(everything=everything))
        now, before = asyncio.get_running_loop().time(), self._down
        known = self._mesh.clusters.known
        down = [known[each] for each in sorted(logs.clusters()) if each in known and known[each].down is not None]
        self._down = {each.name: max(before.get(each.name, now), each.down_since) for each in down}
        for cluster, since in self._down.items():
            unreachable = report.unreachable.add(cluster_name=cluster)
            unreachable.duration.FromMilliseconds(round(1000 * max(0.0, now - since)))
        if report.logs or report.unreachable or before:
            answers.add(discovery.WatchRequest(standby=report))

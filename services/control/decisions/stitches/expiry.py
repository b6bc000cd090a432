"""Parts that have expired leave their logs: control asks the clusters of the oldest parts for what is left there."""

from __future__ import annotations

import contextlib

import structlog
from prometheus_client import Gauge

from mesh.rpc import events
from mesh.stitches import LogPart
from services.control.decisions.leading import looks
from services.control.decisions.stitches.retaining import Retaining
from services.control.domain.errors import Refusal
from services.control.domain.stitches.logs import (
    STITCHES,
    dissolved,
    ended,
    is_other,
    logs_of,
    present_parts,
    to_watch,
)
from services.control.domain.stitches.retention import place_of
from services.control.domain.view import MeshView
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError

LOOK_EVERY = 15.0
"""Seconds between two checks: retention takes minutes."""

log = structlog.get_logger(__name__)
parts_gauge = Gauge("kafka_mesh_control_stitched_log_parts", "Parts of all stitched logs.")


class Expiry:
    """Watches the oldest parts of stitched logs."""

    def __init__(self, journal: Journal, connections: Connections, retaining: Retaining) -> None:
        self._journal = journal
        self._connections = connections
        self._retaining = retaining
        self._gone: set[tuple[str, str]] = set()
        """Clusters and topics there that were gone at the last check: a broker that starts may not know a topic yet."""

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads. Control asks a cluster that is away again later."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            view = self._journal.view
            parts_gauge.set(sum(len(each.parts) for each in logs_of(view.state.effective).values()))
            moving = {each.spec.topic for each in view.topic_moves.open.values()}
            for topic, part in to_watch(view.state.effective, moving):
                with contextlib.suppress(Refusal, StoreUnavailableError, TimeoutError, UnreachableError):
                    await self.check(topic, part)
            for topic, present in present_parts(view.state.effective, moving):
                with contextlib.suppress(Refusal, StoreUnavailableError, TimeoutError, UnreachableError):
                    await self.check_present(topic, present)

    async def check_present(self, topic: str, present: LogPart | None) -> None:
        """Ends a log whose present topic is gone, or was made anew; and a fork to which no rule leads.

        Raises UnreachableError.
        """
        place = ("", topic) if present is None else (present.cluster, present.topic)
        view = self._journal.view
        found = b"" if present is None else await self._id_of(present)
        if present is not None and not is_other(present, found):
            self._gone.discard(place)
            return
        if not found and place not in self._gone:  # a fork that is just made gets its rule last
            self._gone.add(place)
            return
        self._gone.discard(place)
        await self._append(ended(topic), view, f"topic {topic} is gone, or was made anew")
        log.info("a stitched log has ended", topic=topic)

    async def _id_of(self, part: LogPart) -> bytes | None:
        """None: the cluster of the part has no such topic."""
        cluster = self._journal.view.state.effective.clusters[part.cluster]
        return (await self._connections.topic_ids(cluster, [part.topic])).get(part.topic)

    async def check(self, topic: str, part: LogPart) -> None:
        """Takes the oldest part of a log away if its cluster has no record of it any more. Raises UnreachableError."""
        view = self._journal.view
        cluster = view.state.effective.clusters[part.cluster]
        count = await self._connections.partitions_of(cluster, part.topic)
        place = part.cluster, part.topic
        if count and part.topic_id and is_other(part, await self._id_of(part)):
            count = 0  # a topic that was made anew has none of the records
        if count is None and place not in self._gone:
            self._gone.add(place)
            return
        self._gone.discard(place)
        logs = await self._connections.log_ranges(cluster, {part.topic: count}) if count else {}
        changed = dissolved(view.state.effective, topic, logs.get(part.topic))
        if changed is None:
            return
        await self._retaining.give_back(topic, place_of(part))
        await self._append(changed, view, f"its part on {part.cluster} has expired")
        log.info("the oldest part of a stitched log has expired", topic=topic, cluster=part.cluster)

    async def _append(self, changed: events.StitchedLogsChanged, view: MeshView, reason: str) -> None:
        await self._journal.append(
            [Draft(STITCHES, changed)],
            Caller(CONTROL, reason),
            view,
            rests_on=lambda view: (view.rules_revision, view.state.effective.policies.stitch_policy),
        )

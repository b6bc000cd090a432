"""The state that all client connections of the process share: tables, the way upstream, and the hold."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import structlog

from mesh.listeners.codec import policy_from_proto as listeners_from_proto
from mesh.protection.codec import policy_from_proto as protection_policy_from_proto
from mesh.routing import RoutingTable
from mesh.validation.codec import new_topics_from_proto, policy_from_proto
from services.gateway import metrics
from services.gateway.downstream.budget import ByteBudget
from services.gateway.downstream.control_changes import ControlChanges
from services.gateway.downstream.conversions import Conversions
from services.gateway.downstream.group_names import GroupNames
from services.gateway.downstream.hold import Hold, Underway
from services.gateway.downstream.refused import Refused
from services.gateway.downstream.rehearsing import Rehearsing
from services.gateway.downstream.tables import Tables, View
from services.gateway.downstream.waiting_room import WaitingRoom
from services.gateway.quotas.accounts import Quotas
from services.gateway.quotas.crowds import UNBOUNDED, Crowds
from services.gateway.requests.groups.share_opening import end_sessions
from services.gateway.requests.memory import Memory, Session
from services.gateway.requests.nodes import Advertised
from services.gateway.requests.plan import MeshView
from services.gateway.requests.records.producer_memory import settled_at
from services.gateway.requests.topic_ids import known_name
from services.gateway.upstream.clusters import Clusters

if TYPE_CHECKING:
    from services.gateway.downstream.client_figures import ClientFigures
    from services.gateway.downstream.open_listeners import OpenListeners
    from services.gateway.downstream.request_tracing import RequestTracing
    from services.gateway.downstream.revocations import Revocations
    from services.gateway.downstream.siblings import Siblings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds of client connections."""

    max_frame_bytes: int = 100 * 1024 * 1024
    max_requests: int = 100
    """Unanswered requests of one connection; more are left in the socket."""
    max_in_flight_bytes: int = 512 * 1024 * 1024
    """The bound for all connections together."""
    max_of_address: int = UNBOUNDED
    """Connections."""
    max_of_principal: int = UNBOUNDED


@dataclass(slots=True)
class Mesh:
    """The tables, the way upstream, and the requests on their way."""

    clusters: Clusters
    mesh_id: str
    limits: ClientLimits
    conversions: Conversions = field(default_factory=Conversions)
    tables: Tables = field(default_factory=Tables)
    memory: Memory = field(default_factory=Memory)
    refused: Refused = field(default_factory=Refused)
    quotas: Quotas = field(default_factory=Quotas)
    changes: ControlChanges | None = None
    """The way of clients' changes to control; None without a router."""
    siblings: "Siblings | None" = None
    """The other workers of this gateway; None: it has none."""
    tracing: "RequestTracing | None" = None
    """None: requests are not traced."""
    figures: "ClientFigures | None" = None
    """None: nobody scrapes."""
    hold: Hold | None = None
    producing: dict[object, Underway] = field(default_factory=dict)
    committing: dict[object, Underway] = field(default_factory=dict)
    """Produce requests that have started and are not answered."""
    revocations: "Revocations | None" = None
    """None: before the start."""
    listeners: "OpenListeners | None" = None
    """None: before the start."""
    budget: ByteBudget = field(init=False)
    crowds: Crowds = field(init=False)
    rehearsing: Rehearsing = field(init=False)
    room: WaitingRoom = field(init=False)
    """Where Fetch requests of quiet consumers wait."""

    def __post_init__(self) -> None:
        self.budget = ByteBudget(self.limits.max_in_flight_bytes)
        self.crowds = Crowds(self.limits.max_of_address, self.limits.max_of_principal)
        rehearsing = self.rehearsing = Rehearsing(self.clusters)
        self.memory.on_rehearsed = rehearsing.take
        room = self.room = WaitingRoom(self.clusters)
        metrics.waiting_fetches.set_function(lambda: room.waiting)
        metrics.log_end_watches.set_function(lambda: room.watches)
        self.clusters.on_refused = self.refused.take
        sessions = self.memory.fetch_sessions
        sessions.on_made_way = metrics.fetch_sessions_made_way.inc
        self.memory.sight.on_held = lambda why: metrics.held_answers.labels(why).inc()
        self.memory.on_invalid = self.refused.take_batch
        self.memory.on_invalid_topic = self.refused.take_topic
        self.memory.on_withheld = self.refused.take_withheld
        self.memory.on_part = lambda part: metrics.stitched_requests.labels(part.value).inc()
        self.memory.on_rebalance = GroupNames().count_rebalance
        self.memory.on_shadow_fault = lambda why: metrics.shadow_faults.labels(why).inc()
        metrics.fetch_sessions.set_function(lambda: len(sessions))
        metrics.fetch_session_partitions.set_function(lambda: sessions.partitions)
        for what, store in self.memory.stores.items():
            metrics.remembered.labels(what).set_function(partial(len, store))
            metrics.remembered_most.labels(what).set(store.capacity)
        passages = self.memory.passages
        metrics.passages.set_function(lambda: len(passages))
        metrics.quota_accounts.set_function(partial(len, self.quotas))

    @property
    def table(self) -> RoutingTable:
        """The table in force."""
        return self.tables.in_force

    def view(self, session: Session, advertised: Advertised, followed: View) -> MeshView:
        """The view of the mesh for a request that starts now."""
        clock = asyncio.get_running_loop().time
        return MeshView(
            table=followed.table,
            clusters=followed.clusters(self.clusters.known),
            nodes=followed.nodes(advertised, session.software_name, session.software_version),
            session=session,
            memory=self.memory,
            served=self.clusters.served,
            mesh_id=self.mesh_id,
            now=clock(),
            clock=clock,
            time_ms=time.time_ns() // 1_000_000,
            random_bits=secrets.randbits,
            poll_bytes=self.clusters.answer_room.poll_bytes,
        )

    def left(self, session: Session) -> None:
        """A client's connection has ended."""
        self.crowds.left(session.number)
        if self.figures is not None:
            self.figures.left(session)
        end_sessions(session, self.memory.share_sessions)
        traffic = self.memory.traffic
        if traffic is not None and traffic.receipts is not None:
            traffic.receipts.groups.left(session.reader, session.number)

    def run_table(self, table: RoutingTable) -> None:
        """Put a table in force: one assignment, for all requests that start from now on."""
        self.clusters.follow(table)
        validation, protection = table.policies.validation_policy, table.policies.protection_policy
        if self.memory.validation.revision != (0 if validation is None else validation.revision):
            self.memory.validation = policy_from_proto(validation)
            self.memory.new_topics = new_topics_from_proto(validation)
        if self.memory.protection.revision != (0 if protection is None else protection.revision):
            self.memory.protection = protection_policy_from_proto(protection)
        self.memory.rehearsals = self.rehearsing.follow(table.policies.rehearsal_policy)
        self.memory.acknowledged.follow(table.policies.standby_policy)
        before = self.tables.authorization
        self.tables.run(table)
        if self.revocations is not None and self.tables.authorization is not before:
            self.revocations.rights(before, self.tables.authorization)
        self.memory.stitches = self.tables.stitches
        self.memory.past_reads.keep(self.memory.stitches.logs)
        self.quotas.follow(table.policies.quota_policy)
        if self.listeners is not None:
            self.listeners.follow(listeners_from_proto(table.policies.listener_policy))
        metrics.table_revision.set(table.revision)
        rules = len(table.living_rules)
        log.info("table in force", revision=table.revision, clusters=list(table.clusters), rules=rules)

    def begin_hold(self, after: RoutingTable) -> Hold:
        """Hold the topics that `after` moves. Requests of an earlier hold go on, unless this hold has them too."""
        earlier, self.hold = self.hold, Hold(self.table, after, self._topic_name, self._letters_of)
        self.clusters.follow(after)
        self.hold.drain({**self.producing, **self.committing})
        if earlier is not None:
            earlier.release()
        return self.hold

    async def settled(self, concerns: Callable[[str], bool]) -> None:
        """Returns when clusters have worked off the batches without an answer of the topics that this concerns."""
        clock, doubts = asyncio.get_running_loop().time, self.memory.doubts
        while (now := clock()) < (end := settled_at(doubts.entries(), concerns, now)):
            await asyncio.sleep(end - now)

    def _topic_name(self, topic_id: bytes, seen: RoutingTable) -> str | None:
        now = asyncio.get_running_loop().time()
        known = self.tables.view_of(seen).clusters(self.clusters.known)
        return known_name(topic_id, self.mesh_id, self.memory, known.values(), now)

    def _letters_of(self, topic: str) -> Iterable[str]:
        return {rule.dead_letter_topic for rule in self.memory.validation.rules_for(topic) if rule.dead_letter_topic}

    def end_hold(self, switch_to: RoutingTable | None = None) -> None:
        """Release the held requests, under `switch_to` or the table in force."""
        hold, self.hold = self.hold, None
        if switch_to is not None:
            self.run_table(switch_to)
        elif hold is not None:
            self.clusters.follow(self.table)
        if hold is not None:
            hold.release()

    def produce_ended(self, who: object) -> None:
        self.producing.pop(who, None)
        self._ended(who)

    def commit_ended(self, who: object) -> None:
        self.committing.pop(who, None)
        self._ended(who)

    def _ended(self, who: object) -> None:
        if self.hold is not None:
            self.hold.answered(who)

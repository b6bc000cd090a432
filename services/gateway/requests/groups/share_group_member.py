"""ShareGroupHeartbeat (KIP-932): to the coordinators on the group's home cluster and on all clusters of its topics.

Each of these clusters assigns the partitions of its own topics (`share_branches`). The client gets home's answer with
the partitions of all.

A branch that does not answer now keeps the partitions that it assigned last. A branch that refuses the member refuses
it for the whole group: a member never gets an assignment that silently lacks topics. If a rule about the group forbids
topics of other clusters, a subscription to them is refused with a sentence.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from services.gateway.requests.groups.group_heartbeat import beat, heard, homeless, refused, unreached
from services.gateway.requests.groups.group_home import find_home, may_have_shadows, owners
from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED, LOOKUP_TIMEOUT_S
from services.gateway.requests.groups.group_subscription import foreign_topics
from services.gateway.requests.groups.group_topic_ids import shown
from services.gateway.requests.groups.share_branches import (
    assigned,
    branches_of,
    merged,
    names_at_home,
    obstacle,
    remembered,
)
from services.gateway.requests.groups.share_members import Assigned, ShareMember
from services.gateway.requests.groups.share_opening import Refused
from services.gateway.requests.groups.share_parts import topics_of_old_parts
from services.gateway.requests.groups.share_sessions import Member
from services.gateway.requests.plan import (
    Call,
    Command,
    Coordinator,
    Forget,
    Lane,
    MeshView,
    Plan,
    Request,
    Unreachable,
)
from services.gateway.requests.traffic.calls import named_group
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import RETRIABLE, ErrorCode, error_name
from services.gateway.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

WAY_OUT = "use a rule about the group with shadow_topics"
JOINS, LEAVES = 0, -1
"""Member epochs: of a member that joins, and the highest of those that leave."""

Outcomes = Mapping[str, ShareGroupHeartbeatResponse | Unreachable]


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ShareGroupHeartbeatRequest)
    named_group(mesh, message.group_id)
    home = yield from find_home(message.group_id, mesh, message.subscribed_topic_names or (), near_topics=True)
    if home is None:
        return homeless(message, ShareGroupHeartbeatResponse)
    if len(mesh.table.clusters) <= 1 or not may_have_shadows(message.group_id, mesh):
        return (yield from _at_home_alone(message, request.version, home, mesh))
    heartbeat = _Heartbeat(message, request.version, home)
    if message.member_epoch <= LEAVES:
        return (yield from heartbeat.leave(mesh))
    return (yield from heartbeat.beat(mesh))


def _at_home_alone(
    message: ShareGroupHeartbeatRequest, version: int, home: str, mesh: MeshView
) -> Generator[Command, Any, ShareGroupHeartbeatResponse]:
    text = foreign_topics(message.group_id, message.subscribed_topic_names or (), home, WAY_OUT, mesh)
    if text is not None:
        return refused(message, ShareGroupHeartbeatResponse, ErrorCode.INVALID_REQUEST, text)
    answer = yield from beat(message, home, version, ShareGroupHeartbeatResponse, mesh)
    if answer.assignment is not None:
        given = yield from shown(answer.assignment.topic_partitions, home, mesh)
        if isinstance(given, Unreachable):
            return unreached(message, ShareGroupHeartbeatResponse, given)
        answer.assignment.topic_partitions = given
    return answer


@dataclass(slots=True)
class _Heartbeat:
    """One heartbeat of a member whose group may span clusters."""

    message: ShareGroupHeartbeatRequest
    version: int
    home: str
    parts: dict[str, Assigned] = field(default_factory=dict)
    """The assignment of each cluster."""

    @property
    def member(self) -> Member:
        return self.message.group_id, self.message.member_id

    def leave(self, mesh: MeshView) -> Generator[Command, Any, ShareGroupHeartbeatResponse]:
        """The member leaves everywhere: a cluster where it has no part has nothing to lose."""
        calls = {cluster: self._leaving(cluster) for cluster in (self.home, *self._elsewhere(mesh))}
        mesh.memory.share_members.drop(self.member)
        outcomes = yield from self._ask(calls, mesh)
        return (yield from heard(self.message, outcomes[self.home], self.home, ShareGroupHeartbeatResponse, mesh))

    def beat(self, mesh: MeshView) -> Generator[Command, Any, ShareGroupHeartbeatResponse]:
        known = yield from self._known(mesh)
        if isinstance(known, Refused):
            return self._refused(known, mesh)
        branches = branches_of(known.topics, self.home, mesh)
        bar = obstacle(self.message.group_id, branches, self.home, mesh)
        if bar is not None and self.message.subscribed_topic_names is not None:
            return self._refused(bar, mesh)
        everywhere = self._with_old_parts(known, branches, mesh)
        outcomes = yield from self._ask(self._calls(known, everywhere, mesh), mesh)
        told = {cluster: outcomes[cluster] for cluster in (self.home, *everywhere)}
        refusal = yield from self._take(known, branches, told, mesh)
        answer = yield from heard(self.message, outcomes[self.home], self.home, ShareGroupHeartbeatResponse, mesh)
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            mesh.memory.share_members.drop(self.member)
        if answer.error_code:
            return answer
        if refusal is not None:
            return self._refused(refusal, mesh)
        # a client that gets no assignment keeps the one that it has
        answer.assignment = merged(self.parts.values(), mesh) if self.home in self.parts else None
        intervals = [each.heartbeat_interval_ms for each in outcomes.values() if not isinstance(each, Unreachable)]
        answer.heartbeat_interval_ms = min(filter(None, intervals), default=answer.heartbeat_interval_ms)
        return answer

    def _known(self, mesh: MeshView) -> Generator[Command, Any, ShareMember | Refused]:
        """The member's topics: as it names them now, as it has named them on this connection, or as home knows them."""
        known = mesh.memory.share_members.get(self.member, mesh.session.number)
        told = self.message.subscribed_topic_names
        if told is not None:
            return ShareMember(mesh.session.number, tuple(dict.fromkeys(told)), known.parts if known else {})
        if known is not None:
            return known
        if self.message.member_epoch == JOINS:
            return Refused(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
        return (yield from remembered(self.member, self.home, mesh))

    def _with_old_parts(
        self, known: ShareMember, branches: Mapping[str, Sequence[str]], mesh: MeshView
    ) -> dict[str, Sequence[str]]:
        """The branches, and the clusters of old parts: a cluster forgets what an empty group has acquired."""
        found = dict(branches)
        for cluster, topics in topics_of_old_parts(known.topics, mesh).items():
            if cluster != self.home:
                found[cluster] = [*found.get(cluster, ()), *topics]
        return found

    def _calls(self, known: ShareMember, branches: Mapping[str, Sequence[str]], mesh: MeshView) -> dict[str, Call]:
        """Home first; a cluster that owns none of the topics any more is left."""
        names = names_at_home(known.topics, self.home, mesh)
        at_home = self._call(self.home, replace(self.message, subscribed_topic_names=names))
        calls = {self.home: replace(at_home, own_names=True)}
        for cluster, topics in branches.items():
            heartbeat = replace(self.message, member_epoch=JOINS, subscribed_topic_names=list(topics))
            calls[cluster] = replace(self._call(cluster, heartbeat), timeout_s=LOOKUP_TIMEOUT_S)
        for cluster in known.parts:
            if cluster not in calls and cluster in mesh.table.clusters:
                calls[cluster] = self._leaving(cluster)
        return calls

    def _take(
        self, known: ShareMember, branches: Mapping[str, Sequence[str]], outcomes: Outcomes, mesh: MeshView
    ) -> Generator[Command, Any, Refused | None]:
        """Takes over what each cluster has assigned; returns the refusal of a branch, if there is one."""
        refusal: Refused | None = None
        for cluster, outcome in outcomes.items():
            part: Assigned | None = None
            if isinstance(outcome, Unreachable) or outcome.error_code in COORDINATOR_MOVED:
                if cluster != self.home:
                    yield Forget(cluster, Coordinator(self.message.group_id))
            elif not outcome.error_code:
                topics = [topic for topic in known.topics if mesh.table.cluster_of(topic) == cluster]
                part = yield from assigned(outcome, cluster, topics, mesh)
            elif cluster in branches and outcome.error_code not in RETRIABLE:
                text = outcome.error_message or error_name(outcome.error_code)
                refusal = refusal or Refused(outcome.error_code, f"cluster {cluster}: {text}")
            part = known.parts.get(cluster) if part is None else part
            if part is not None:
                self.parts[cluster] = part
        mesh.memory.share_members.put(self.member, replace(known, parts=self.parts))
        return refusal

    def _refused(self, refusal: Refused, mesh: MeshView) -> ShareGroupHeartbeatResponse:
        if refusal.code == ErrorCode.UNKNOWN_MEMBER_ID:
            mesh.memory.share_members.drop(self.member)
        return refused(self.message, ShareGroupHeartbeatResponse, refusal.code, refusal.text)

    def _elsewhere(self, mesh: MeshView) -> list[str]:
        """Other clusters where the member may have a part."""
        known = mesh.memory.share_members.get(self.member, mesh.session.number)
        clusters = mesh.table.clusters if known is None else {*known.parts, *owners(known.topics, mesh)}
        return [each for each in mesh.table.clusters if each != self.home and each in clusters]

    def _leaving(self, cluster: str) -> Call:
        epoch = min(LEAVES, self.message.member_epoch)
        call = self._call(cluster, replace(self.message, member_epoch=epoch, subscribed_topic_names=None))
        return call if cluster == self.home else replace(call, timeout_s=LOOKUP_TIMEOUT_S)

    def _call(self, cluster: str, message: ShareGroupHeartbeatRequest) -> Call:
        return Call(cluster, message, self.version, Coordinator(self.message.group_id), Lane.CLIENT)

    def _ask(self, calls: Mapping[str, Call], mesh: MeshView) -> Generator[Command, Any, Outcomes]:
        outcomes = yield from ask_fitting(mesh, list(calls.values()), ShareGroupHeartbeatResponse)
        return dict(zip(calls, outcomes, strict=True))

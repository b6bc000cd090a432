"""One upstream cluster, and the way of every call to it.

Theory of operation
1. While the cluster is down, calls fail at once: a dead cluster must not make clients of the others wait. Only the
   visits go on trying (`visits`).
2. A call goes to a broker: a leader by its number, the controller, a coordinator that is looked for first, or any. It
   takes the connection of its lane (`brokers`).
3. The gateway learns from Metadata answers to clients, too, by the cluster's own names.
4. Below this class topics have the cluster's own names. A caller with other names gives them with the call (`names`).
   The call then goes out, and its answer comes in, over the `border`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from mesh.routing import UpstreamCluster
from services.gateway import metrics
from services.gateway.counting import Count
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.plan import (
    AnyBroker,
    Broker,
    Call,
    Controller,
    Coordinator,
    Lane,
    RawResponse,
    Sent,
    Target,
    Unreachable,
)
from services.gateway.requests.topic_names import TopicNames
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.awaiting import Settle
from services.gateway.upstream.border import Inward, crossing
from services.gateway.upstream.brokers import Brokers, Parts, UpstreamLimits
from services.gateway.upstream.connection import OUR_CLIENT_ID
from services.gateway.upstream.coordinators import Coordinators
from services.gateway.upstream.identities import CHANGED, Identities, IdentityBrokers
from services.gateway.upstream.keyring import Keyring
from services.gateway.upstream.lanes import Lanes
from services.gateway.upstream.learning import Learning
from services.gateway.upstream.lookup import Lookup
from services.gateway.upstream.questions import decoded, metadata_call
from services.gateway.upstream.security import security_of
from services.gateway.upstream.shared import Pool
from services.gateway.upstream.visits import Visits
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.messages import FindCoordinatorResponse, MetadataRequest, MetadataResponse
from services.gateway.wire.schema import Struct

M = TypeVar("M", bound=Struct)


class Cluster:
    """See above. All methods run on the event loop."""

    def __init__(
        self,
        spec: UpstreamCluster,
        limits: UpstreamLimits,
        answer_room: AnswerRoom,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when versions or connections may be others than before."""
        self.spec = spec
        self.name = spec.name
        self.knowledge = ClusterKnowledge(spec.name)
        self._timeout_s = limits.request_timeout_s
        self._lookup = Lookup(spec.name)
        parts = Parts(spec.name, self.knowledge, limits, answer_room, self._lookup)
        self._brokers = Brokers(parts, Keyring(spec.name, security_of(spec)))
        self._learning = Learning(self.knowledge, self._brokers.learn)
        self._identities = Identities(spec, parts, limits.max_identity_connections, on_change)
        self._visits = Visits(self.knowledge, spec.bootstrap_servers, self._brokers, self._timeout_s, on_change)
        self._coordinators = Coordinators(
            self.knowledge, lambda call, done: self._own(call, FindCoordinatorResponse, done), self._brokers.any
        )
        self._call_counters: dict[int, Count] = {}
        self._visiting: asyncio.Task[None] | None = None

    def incarnation(self, lanes: Lanes) -> int:
        """A number that no other cluster of this process has, not even another one of the same name, and no other
        identity at this cluster. 0: this client has no identity here."""
        brokers = self._brokers_of(lanes)
        return 0 if isinstance(brokers, Unreachable) else brokers.incarnation

    def pool(self, broker_id: int, lanes: Lanes) -> Pool | None:
        """The pool that clients of this broker share; None if this client shares nothing."""
        brokers = self._brokers_of(lanes)
        return None if isinstance(brokers, Unreachable) else brokers.pool(broker_id)

    def _brokers_of(self, lanes: Lanes) -> Brokers | Unreachable:
        """The connections that this client's calls take."""
        if self.spec.identity is None or lanes.session is None:
            return self._brokers
        return self._identities.brokers_of(lanes.session)

    @property
    def attempted(self) -> asyncio.Event:
        """Set after the first visit, whether it succeeded or not."""
        return self._visits.attempted

    def takes(self, spec: UpstreamCluster) -> bool:
        """Use this new description of the cluster if connections can stay as they are. Returns whether they can."""
        old = self.spec
        same = spec.bootstrap_servers == old.bootstrap_servers and security_of(spec) == security_of(old)
        if same:
            self.spec = spec
            if old.identity != spec.identity:
                self._identities.follow(spec)
            if old.identity is None and spec.identity is not None:
                self._brokers.end_clients(CHANGED)
        return same

    def start(self) -> None:
        self._visiting = asyncio.get_running_loop().create_task(self._visits.go_on(), name=f"visit {self.name}")

    def give_way(self) -> None:
        """Another cluster of this name takes the calls from now on."""
        self._brokers.give_way()
        self._identities.give_way()

    async def stop(self) -> None:
        self.knowledge.down = "no longer part of the mesh"
        if self._visiting is not None:
            self._visiting.cancel()
            await asyncio.gather(self._visiting, return_exceptions=True)
        await self._brokers.leave()
        await self._identities.leave()
        self._lookup.end()

    # --- calls ---------------------------------------------------------------------------------------------------

    def submit(
        self, call: Call, lanes: Lanes, client_id: str | None, settle: Settle, names: TopicNames | None = None
    ) -> None:
        """Send a call on its way. `settle` is called exactly once, maybe before this returns."""
        api_key = call.key
        refused = self._refusal(call, api_key)
        if refused is not None:
            settle(refused, True)
            return
        message = call.message
        asks_all = isinstance(message, MetadataRequest) and message.topics is None
        if names is not None and not call.own_names:
            crossed = crossing(call, names)
            if isinstance(crossed, Unreachable):
                settle(crossed, True)
                return
            call, inward = crossed
            settle = _translating(inward, settle)
        brokers = self._brokers if call.by_mesh else self._brokers_of(lanes)
        if isinstance(brokers, Unreachable):
            settle(brokers, True)
            return
        if isinstance(brokers, IdentityBrokers):
            settle = brokers.judged(settle)
            asks_all = False  # an identity does not see all topics
        if api_key == ApiKey.METADATA and not call.raw:
            settle = self._learning.before(settle, of_all_topics=asks_all)
        target = call.target
        if isinstance(target, Coordinator) and self._coordinators.known(target) is None:
            self._coordinators.find(
                target, lambda found: self._submit_to(brokers, found, call, api_key, lanes, client_id, settle)
            )
        else:
            self._submit_to(brokers, self._resolved(target), call, api_key, lanes, client_id, settle)

    def _refusal(self, call: Call, api_key: int) -> Unreachable | None:
        if self.knowledge.down is not None:
            metrics.upstream_errors.labels(self.name, "down").inc()
            return Unreachable(self.name, self.knowledge.down, never_sent=True)
        spoken = self.knowledge.versions.get(api_key)
        if spoken is None or call.version not in spoken:
            metrics.upstream_errors.labels(self.name, "version").inc()
            fact = f"{api_name(api_key)} v{call.version} is not spoken by the cluster (it speaks {spoken or 'none'})"
            return Unreachable(self.name, fact, never_sent=True)
        return None

    def _submit_to(
        self,
        brokers: Brokers,
        found: int | Unreachable,
        call: Call,
        api_key: int,
        lanes: Lanes,
        client_id: str | None,
        settle: Settle,
    ) -> None:
        connection = found if isinstance(found, Unreachable) else brokers.connection(found, call.lane, lanes)
        if isinstance(connection, Unreachable):
            settle(connection, True)
            return
        counter = self._call_counters.get(api_key)
        if counter is None:
            counter = self._call_counters[api_key] = metrics.upstream_calls.labels(self.name, api_name(api_key))
        counter.total += 1
        if call.no_answer:
            connection.unheard = True
        # a broker that throttles a client reads no more from the connection, which would be everybody's
        connection.submit(call, api_key, OUR_CLIENT_ID if call.lane is Lane.SHARED else client_id, settle)

    def _resolved(self, target: Target) -> int | Unreachable:
        found: int | None
        match target:
            case Broker(broker_id):
                found = broker_id
            case Controller() if self.knowledge.controller_id in self.knowledge.brokers:
                found = self.knowledge.controller_id
            case AnyBroker() | Controller():
                found = self._brokers.any()
            case Coordinator():
                found = self._coordinators.known(target)
        if found is None:
            return Unreachable(self.name, f"no broker is known for {target}", never_sent=True)
        return found

    def forget(self, coordinator: Coordinator) -> None:
        self._coordinators.forget(coordinator)

    # --- questions of the gateway's own --------------------------------------------------------------------------

    def refresh(
        self, topics: tuple[str, ...], done: Callable[[Unreachable | None], None], names: TopicNames | None = None
    ) -> None:
        """Ask for these topics' metadata (creating none); `done` gets None, or why it could not be."""

        def learnt(outcome: MetadataResponse | Unreachable) -> None:
            done(outcome if isinstance(outcome, Unreachable) else None)

        self._own(metadata_call(self.knowledge, topics, self._timeout_s), MetadataResponse, learnt, names)

    def _own(
        self, call: Call, cls: type[M], done: Callable[[M | Unreachable], None], names: TopicNames | None = None
    ) -> None:
        """Send a question on the connection that all short questions share."""

        def settle(outcome: RawResponse | Unreachable | Sent, _: bool) -> None:
            if not isinstance(outcome, Sent):
                done(decoded(outcome, cls, self.name) if isinstance(outcome, RawResponse) else outcome)

        self.submit(replace(call, timeout_s=self._timeout_s), Lanes(), OUR_CLIENT_ID, settle, names)


def _translating(inward: Inward, settle: Settle) -> Settle:
    def translate(outcome: RawResponse | Unreachable | Sent, owned: bool) -> None:
        if isinstance(outcome, RawResponse):
            translated = inward(outcome)
            settle(translated, owned or translated is not outcome)
        else:
            settle(outcome, owned)

    return translate

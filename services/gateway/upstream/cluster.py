"""One upstream cluster: its brokers, whether it can be reached, and the way of every call to it.

Theory of operation
1. `_keep_up` visits the cluster: any broker that answers ApiVersions and Metadata makes it `up`; the visit is repeated
   every `VISIT_EVERY_S`, and soon after a connection has broken.
2. While the cluster is down, calls fail at once: a dead cluster must not make clients of the others wait. Only
   `_keep_up` goes on trying, with growing pauses.
3. A broker that could not be connected to fails calls for a short time, then the next call tries again.
4. Metadata answers that pass by are learnt from.
5. Above this class topics are called as clients call them, below it as the cluster does (`border`).
"""

import asyncio
import itertools
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog
from prometheus_client import Counter

from mesh import VERSION
from mesh.routing import RoutingTable, UpstreamCluster
from mesh.settings import host_port
from services.gateway import metrics
from services.gateway.requests.knowledge import BrokerAddress, ClusterKnowledge, VersionRange
from services.gateway.requests.plan import (
    AnyBroker,
    Broker,
    Call,
    Controller,
    Coordinator,
    Lane,
    RawResponse,
    Sent,
    Unreachable,
)
from services.gateway.requests.topic_names import TopicNames
from services.gateway.upstream.border import Inward, crossing
from services.gateway.upstream.connection import OUR_CLIENT_ID, BrokerConnection, Settle
from services.gateway.upstream.coordinators import Coordinators
from services.gateway.upstream.keyring import Keyring
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.upstream.security import security_of
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from services.gateway.wire.messages.metadata import MetadataRequestTopic
from services.gateway.wire.primitives import WireError
from services.gateway.wire.schema import Struct

log = structlog.get_logger(__name__)

VISIT_EVERY_S = 30.0
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.2, 5.0
"""Pauses between visits to a cluster that is down."""
BROKER_REST_S = 1.0
"""After a failed connection, calls to that broker fail at once for so long."""
METADATA_VERSIONS = VersionRange(4, 12)
"""From 4 on a client can forbid that asking creates a topic; we never ask otherwise."""
FEATURES = VersionRange(3, 4)
"""Versions of ApiVersions that tell what a cluster has switched on; 0 is the one that every broker answers. Before 4,
brokers keep back the features that they support from level 0 on."""
OUR_VERSION = VERSION.partition("+")[0]
"""Brokers refuse a name or version of software with anything in it but letters, digits, dots and dashes."""
BOOTSTRAP_ID = -1
LEFT = "the gateway has left the cluster"


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """Bounds of every upstream connection."""

    connect_timeout_s: float = 3.0
    request_timeout_s: float = 10.0
    max_frame_bytes: int = 256 * 1024 * 1024
    """A broker's answer may exceed what a client asked for by one batch."""
    max_in_flight: int = 10_000
    """Unanswered requests of one connection. Short questions of all clients share one: in a storm each has its own."""


_incarnations = itertools.count(1)
M = TypeVar("M", bound=Struct)


class Cluster:
    """See above. All methods run on the event loop."""

    def __init__(self, spec: UpstreamCluster, limits: UpstreamLimits, on_versions: Callable[[], None]) -> None:
        self.spec = spec
        self.name = spec.name
        self.incarnation = next(_incarnations)
        """A number that no other cluster of this process has, also none of the same name."""
        self.knowledge = ClusterKnowledge(spec.name)
        self.attempted = asyncio.Event()
        """Set after the first visit, whatever came of it."""
        self.names = TopicNames(spec.name, RoutingTable())
        self._limits = limits
        self._on_versions = on_versions
        self._loop = asyncio.get_running_loop()
        self._keyring = Keyring(spec.name, security_of(spec))
        self._shared: dict[int, BrokerConnection] = {}
        self._lanes: weakref.WeakSet[BrokerConnection] = weakref.WeakSet()
        """Connections that belong to clients."""
        self._asked_versions: dict[int, BrokerConnection] = {}
        """Broker id -> the connection on which it was asked: a broker that comes back may be of another version."""
        self._resting: dict[int, tuple[float, str]] = {}
        """Broker id -> until when calls fail at once, and why."""
        self._coordinators = Coordinators(
            self.knowledge, lambda call, done: self._own(call, FindCoordinatorResponse, done)
        )
        self._opening: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._call_counters: dict[int, Counter] = {}
        self._keeper: asyncio.Task[None] | None = None

    def takes(self, spec: UpstreamCluster) -> bool:
        """Go by another description of the cluster from now on, if connections stay as they are by it."""
        old = self.spec
        same = spec.bootstrap_servers == old.bootstrap_servers and security_of(spec) == security_of(old)
        if same:
            self.spec = spec
        return same

    def call_topics(self, names: TopicNames) -> None:
        """Go by these names from now on."""
        if names.renaming or self.names.renaming:
            before = self.names
            self.knowledge.forget(
                [topic for topic in self.knowledge.topics if before.upstream(topic) != names.upstream(topic)]
            )
        self.names = names

    def start(self) -> None:
        self._keeper = self._loop.create_task(self._keep_up(), name=f"keep up with {self.name}")

    async def stop(self) -> None:
        self.knowledge.down = "no longer part of the mesh"
        tasks = [task for task in (self._keeper, *self._opening) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._shared.values()):
            connection.shut(LEFT)
        for connection in self._lanes:
            connection.retire(LEFT)

    # --- calls ---------------------------------------------------------------------------------------------------

    def submit(self, call: Call, lanes: Lanes, client_id: str | None, settle: Settle) -> None:
        """Send a call on its way. `settle` is called exactly once, maybe before this returns."""
        api_key = call.key
        refused = self._refusal(call, api_key)
        if refused is not None:
            settle(refused, True)
            return
        if api_key == ApiKey.METADATA and not call.raw:
            settle = self._learning(settle)
        if self.names.renaming and not call.own_names:
            crossed = crossing(call, self.names)
            if isinstance(crossed, Unreachable):
                settle(crossed, True)
                return
            call, inward = crossed
            settle = _translating(inward, settle)
        target = call.target
        if isinstance(target, Coordinator) and self._coordinators.known(target) is None:
            self._coordinators.find(
                target, lambda found: self._submit_to(found, call, api_key, lanes, client_id, settle)
            )
        else:
            self._submit_to(self._resolved(target), call, api_key, lanes, client_id, settle)

    def _refusal(self, call: Call, api_key: int) -> Unreachable | None:
        if self.knowledge.down is not None:
            self._count("down")
            return Unreachable(self.name, self.knowledge.down, never_sent=True)
        spoken = self.knowledge.versions.get(api_key)
        if spoken is None or call.version not in spoken:
            self._count("version")
            fact = f"{api_name(api_key)} v{call.version} is not spoken by the cluster (it speaks {spoken or 'none'})"
            return Unreachable(self.name, fact, never_sent=True)
        return None

    def _submit_to(
        self, found: int | Unreachable, call: Call, api_key: int, lanes: Lanes, client_id: str | None, settle: Settle
    ) -> None:
        connection = found if isinstance(found, Unreachable) else self._connection(found, call.lane, lanes)
        if isinstance(connection, Unreachable):
            settle(connection, True)
            return
        counter = self._call_counters.get(api_key)
        if counter is None:
            counter = self._call_counters[api_key] = metrics.upstream_calls.labels(self.name, api_name(api_key))
        counter.inc()
        if call.no_answer:
            lanes.unheard.add(connection)
        connection.submit(call, api_key, client_id, settle)

    def _learning(self, settle: Settle) -> Settle:
        def learn(outcome: RawResponse | Unreachable | Sent, owned: bool) -> None:
            if isinstance(outcome, RawResponse):
                response = decoded(outcome, MetadataResponse, self.name)
                if isinstance(response, MetadataResponse):
                    self._learn(response)
            settle(outcome, owned)

        return learn

    def _resolved(self, target: object) -> int | Unreachable:
        match target:
            case Broker(broker_id):
                return broker_id
            case Controller() if self.knowledge.controller_id in self.knowledge.brokers:
                return self.knowledge.controller_id
            case Coordinator():
                found = self._coordinators.known(target)
                if found is not None:
                    return found
            case AnyBroker() | Controller():
                now = self._loop.time()
                for broker_id in self.knowledge.brokers:
                    if self._resting.get(broker_id, (0.0, ""))[0] <= now:
                        return broker_id
        return Unreachable(self.name, f"no broker is known for {target}", never_sent=True)

    def _connection(self, broker_id: int, lane: Lane, lanes: Lanes) -> BrokerConnection | Unreachable:
        key = LaneKey(self.incarnation, broker_id, lane)
        if lane is Lane.SHARED:
            shared = self._shared.get(broker_id)
            if shared is not None and shared.ended is None:
                return shared
        else:
            if lanes.closed:
                return Unreachable(self.name, "the client is gone", never_sent=True)
            own = lanes.get(key)
            if own is not None:
                return own
        address = self.knowledge.brokers.get(broker_id)
        if address is None:
            return Unreachable(self.name, f"broker {broker_id} is not known", never_sent=True)
        until, why = self._resting.get(broker_id, (0.0, ""))
        if self._loop.time() < until:
            self._count("connect")
            return Unreachable(self.name, why, never_sent=True)
        connection = self._open(address)
        if lane is Lane.SHARED:
            self._shared[broker_id] = connection
        else:
            self._lanes.add(connection)
            lanes.add(key, connection)
        return connection

    def _open(self, address: BrokerAddress) -> BrokerConnection:
        place = f"{address.host}:{address.port}"
        limits = self._limits
        connection = BrokerConnection(self.name, place, limits.max_frame_bytes, limits.max_in_flight, self._keyring)
        connection.on_broken = self._wake.set
        task = self._loop.create_task(self._opened(connection, address), name=f"connect to {self.name} {place}")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return connection

    async def _opened(self, connection: BrokerConnection, address: BrokerAddress) -> None:
        fault = await connection.open(address.host, address.port, self._limits.connect_timeout_s)
        if fault is not None:
            self._resting[address.broker_id] = (self._loop.time() + BROKER_REST_S, fault)
        else:
            self._resting.pop(address.broker_id, None)

    def forget(self, coordinator: Coordinator) -> None:
        self._coordinators.forget(coordinator)

    # --- metadata ------------------------------------------------------------------------------------------------

    def refresh(self, topics: tuple[str, ...], done: Callable[[Unreachable | None], None]) -> None:
        """Ask for these topics' metadata (creating none); `done` gets None, or why it could not be."""

        def learnt(outcome: MetadataResponse | Unreachable) -> None:
            done(outcome if isinstance(outcome, Unreachable) else None)

        self._own(self._metadata_call([MetadataRequestTopic(name=topic) for topic in topics]), MetadataResponse, learnt)

    def _metadata_call(self, topics: list[MetadataRequestTopic]) -> Call:
        versions = self.knowledge.versions.get(ApiKey.METADATA, METADATA_VERSIONS)
        version = min(METADATA_VERSIONS.high, versions.high)
        return Call(self.name, MetadataRequest(topics=topics, allow_auto_topic_creation=False), version)

    def _learn(self, response: MetadataResponse) -> None:
        self.knowledge.learn(response)
        for broker_id in [known for known in self._shared if known not in self.knowledge.brokers]:
            if broker_id != BOOTSTRAP_ID:
                self._shared.pop(broker_id).shut("the broker has left the cluster")

    def _own(self, call: Call, cls: type[M], done: Callable[[M | Unreachable], None]) -> None:
        """A call of the gateway's own, on a shared connection."""

        def settle(outcome: RawResponse | Unreachable | Sent, _: bool) -> None:
            if not isinstance(outcome, Sent):
                done(decoded(outcome, cls, self.name) if isinstance(outcome, RawResponse) else outcome)

        self.submit(replace(call, timeout_s=self._limits.request_timeout_s), Lanes(), OUR_CLIENT_ID, settle)

    # --- up and down ---------------------------------------------------------------------------------------------

    async def _keep_up(self) -> None:
        backoff = FIRST_BACKOFF_S
        while True:
            self._wake.clear()
            try:
                reason = await self._visit()
            except Exception as error:  # a fault of ours must not leave the cluster down for good
                log.exception("a visit failed", cluster=self.name)
                reason = f"a fault of the gateway, see its log: {error!r}"
            self._mark(reason)
            self.attempted.set()
            if reason is None:
                backoff, pause = FIRST_BACKOFF_S, VISIT_EVERY_S
            else:
                pause = backoff * random.uniform(0.5, 1.0)
                backoff = min(MAX_BACKOFF_S, backoff * 2)
            if reason is not None:
                await asyncio.sleep(pause)
                continue
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
                    await asyncio.sleep(FIRST_BACKOFF_S)  # a connection that breaks comes with many others
            except TimeoutError:
                continue

    def _mark(self, reason: str | None) -> None:
        if reason is None and self.knowledge.down is not None:
            log.info("cluster is up", cluster=self.name, brokers=len(self.knowledge.brokers))
        elif reason is not None and (self.knowledge.down is None or not self.attempted.is_set()):
            log.warning("cluster is down", cluster=self.name, reason=reason)
        self.knowledge.down = reason
        metrics.cluster_up.labels(self.name).set(reason is None)

    async def _visit(self) -> str | None:
        """Ask any broker who is there; None when one answered, else why none did."""
        faults: list[str] = []
        known = list(self.knowledge.brokers.values())
        bootstrap = [BrokerAddress(BOOTSTRAP_ID, *host_port(server), None) for server in self.spec.bootstrap_servers]
        for address in [*known, *bootstrap]:
            fault = await self._visit_broker(address)
            if fault is None:
                return None
            faults.append(fault)
        return "; ".join(dict.fromkeys(faults))

    async def _visit_broker(self, address: BrokerAddress) -> str | None:
        connection = self._shared.get(address.broker_id)
        if connection is None or connection.ended is not None or address.broker_id == BOOTSTRAP_ID:
            connection = self._open(address)
            if address.broker_id != BOOTSTRAP_ID:
                self._shared[address.broker_id] = connection
        try:
            if self._asked_versions.get(address.broker_id) is not connection:
                said = await self._ask(connection, Call(self.name, ApiVersionsRequest(), 0), ApiVersionsResponse)
                version = _features_version(said)
                if version is not None:
                    said = await self._ask_features(connection, version)
                if said.error_code:
                    return f"{connection.address} answered ApiVersions with error {said.error_code}"
                self.knowledge.learn_versions(address.broker_id, said)
                self._asked_versions[address.broker_id] = connection
                self._on_versions()
            elif (spoken := FEATURES.intersection(self.knowledge.versions[ApiKey.API_VERSIONS])) is not None:
                self.knowledge.learn_features(await self._ask_features(connection, spoken.high))
            if METADATA_VERSIONS.intersection(self.knowledge.versions.get(ApiKey.METADATA, VersionRange(0, 0))) is None:
                return f"{connection.address} is older than Kafka 0.11: asking it for metadata may create topics"
            self._learn(await self._ask(connection, self._metadata_call([]), MetadataResponse))
        except CallFailedError as error:
            return str(error)
        finally:
            if address.broker_id == BOOTSTRAP_ID:
                connection.shut("bootstrap is done")
        return None

    async def _ask_features(self, connection: BrokerConnection, version: int) -> ApiVersionsResponse:
        """They change while brokers run: somebody switches them on for the whole cluster."""
        call = Call(self.name, ApiVersionsRequest(OUR_CLIENT_ID, OUR_VERSION), version)
        return await self._ask(connection, call, ApiVersionsResponse)

    async def _ask(self, connection: BrokerConnection, call: Call, cls: type[M]) -> M:
        answer: asyncio.Future[M | Unreachable] = self._loop.create_future()

        def settle(outcome: RawResponse | Unreachable | Sent, _: bool) -> None:
            if not answer.done() and not isinstance(outcome, Sent):
                known = decoded(outcome, cls, self.name) if isinstance(outcome, RawResponse) else outcome
                answer.set_result(known)

        timed = replace(call, timeout_s=self._limits.request_timeout_s)
        connection.submit(timed, call.key, OUR_CLIENT_ID, settle)
        outcome = await answer
        if isinstance(outcome, Unreachable):
            raise CallFailedError(outcome.reason)
        return outcome

    def _count(self, kind: str) -> None:
        metrics.upstream_errors.labels(self.name, kind).inc()


def _translating(inward: Inward, settle: Settle) -> Settle:
    def translate(outcome: RawResponse | Unreachable | Sent, owned: bool) -> None:
        if isinstance(outcome, RawResponse):
            translated = inward(outcome)
            settle(translated, owned or translated is not outcome)
        else:
            settle(outcome, owned)

    return translate


def _features_version(said: ApiVersionsResponse) -> int | None:
    """The version in which this broker tells its features."""
    spoken = next(
        (VersionRange(v.min_version, v.max_version) for v in said.api_keys if v.api_key == ApiKey.API_VERSIONS), None
    )
    common = spoken.intersection(FEATURES) if spoken else None
    return common.high if common else None


class CallFailedError(Exception):
    """A call of the gateway's own got no answer."""


def decoded(response: RawResponse, cls: type[M], cluster: str) -> M | Unreachable:
    """The response as a message; what can't be read counts as no answer."""
    try:
        return response.decode(cls)
    except WireError as error:
        return Unreachable(cluster, f"an answer that is not {cls.__name__} v{response.version}: {error}")

"""Visits to one cluster: whether it can be reached, its brokers, their API versions and their enabled features.

Theory of operation
1. Any broker that answers ApiVersions and Metadata makes the cluster `up`; the visit is repeated every `VISIT_EVERY_S`,
   and soon after a connection has broken.
2. While the cluster is down only the visits go on trying, with growing pauses: first the brokers that were known, then
   the bootstrap servers, by names that are looked up anew.
3. Each broker is asked for its versions once for each connection. A broker that comes back may be of another version,
   and while a cluster is upgraded its brokers speak different versions. Features are asked for at each visit: somebody
   switches them on for the whole cluster while brokers run.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from functools import partial

import structlog

from mesh import VERSION
from mesh.settings import host_port
from services.gateway import metrics
from services.gateway.requests.knowledge import BrokerAddress, ClusterKnowledge, VersionRange
from services.gateway.requests.plan import Call, RawResponse, Sent, Unreachable
from services.gateway.upstream.brokers import Brokers
from services.gateway.upstream.connection import OUR_CLIENT_ID, BrokerConnection
from services.gateway.upstream.questions import METADATA_VERSIONS, CallFailedError, ask, decoded, metadata_call
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataResponse

log = structlog.get_logger(__name__)

VISIT_EVERY_S = 30.0
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.2, 5.0
"""Pauses between visits to a cluster that is down."""
FEATURES = VersionRange(3, 4)
"""Versions of ApiVersions that report the enabled features of a cluster; every broker answers version 0. Before 4,
brokers keep back the features that they support from level 0 on."""
OUR_VERSION = VERSION.partition("+")[0]
"""Brokers refuse a name or version of software with anything in it but letters, digits, dots and dashes."""
BOOTSTRAP_ID = -1


class Visits:
    """See above. `knowledge` keeps their results; `on_versions` is called when versions may have changed."""

    def __init__(
        self,
        knowledge: ClusterKnowledge,
        bootstrap_servers: Iterable[str],
        brokers: Brokers,
        timeout_s: float,
        on_versions: Callable[[], None],
    ) -> None:
        self.attempted = asyncio.Event()
        """Set after the first visit, whether it succeeded or not."""
        self._knowledge = knowledge
        self._bootstrap = [BrokerAddress(BOOTSTRAP_ID, *host_port(server), None) for server in bootstrap_servers]
        self._brokers = brokers
        self._timeout_s = timeout_s
        self._on_versions = on_versions
        self._asked_versions: dict[int, BrokerConnection] = {}
        """Broker id -> the connection on which the broker was asked."""
        self._all_asked_at = float("-inf")

    async def go_on(self) -> None:
        """Visit the cluster until cancelled."""
        backoff = FIRST_BACKOFF_S
        while True:
            self._brokers.broken.clear()
            try:
                reason = await self._visit()
            except Exception as error:  # a fault of the gateway must not leave the cluster down for good
                log.exception("a visit failed", cluster=self._knowledge.name)
                reason = f"a fault of the gateway, see its log: {error!r}"
            self._mark(reason)
            self.attempted.set()
            if reason is not None:
                await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
                backoff = min(MAX_BACKOFF_S, backoff * 2)
                continue
            backoff = FIRST_BACKOFF_S
            try:
                async with asyncio.timeout(VISIT_EVERY_S):
                    await self._brokers.broken.wait()
                    await asyncio.sleep(FIRST_BACKOFF_S)  # a connection that breaks comes with many others
            except TimeoutError:
                continue

    def _mark(self, reason: str | None) -> None:
        knowledge = self._knowledge
        if reason is None and knowledge.down is not None:
            log.info("cluster is up", cluster=knowledge.name, brokers=len(knowledge.brokers))
        elif reason is not None and (knowledge.down is None or not self.attempted.is_set()):
            log.warning("cluster is down", cluster=knowledge.name, reason=reason)
            if knowledge.down is None:
                knowledge.down_since = asyncio.get_running_loop().time()
        knowledge.down = reason
        metrics.cluster_up.labels(knowledge.name).set(reason is None)

    async def _visit(self) -> str | None:
        """Ask any broker for the brokers of the cluster; None if one answered, else the reason why none did."""
        faults: list[str] = []
        for address in [*self._knowledge.brokers.values(), *self._bootstrap]:
            fault = await self._visit_broker(address)
            if fault is None:
                self._ask_all_for_versions()
                return None
            faults.append(fault)
        return "; ".join(dict.fromkeys(faults))

    async def _visit_broker(self, address: BrokerAddress) -> str | None:
        bootstrap = address.broker_id == BOOTSTRAP_ID
        connection = self._brokers.open(address) if bootstrap else self._brokers.shared(address)
        try:
            return await self._learn_of(address.broker_id, connection)
        except CallFailedError as error:
            return str(error)
        finally:
            if bootstrap:
                connection.shut("bootstrap is done")

    async def _learn_of(self, broker_id: int, connection: BrokerConnection) -> str | None:
        """None if the broker answered everything, else its fault. Raises CallFailedError."""
        knowledge = self._knowledge
        if self._asked_versions.get(broker_id) is not connection:
            said = await self._versions(connection, ApiVersionsRequest(), 0)
            version = _features_version(said)
            if version is not None:
                said = await self._features(connection, version)
            if said.error_code:
                return f"{connection.address} answered ApiVersions with error {said.error_code}"
            knowledge.learn_features(said)
            knowledge.learn_versions(broker_id, said)
            self._asked_versions[broker_id] = connection
            self._on_versions()
        elif (spoken := FEATURES.intersection(knowledge.versions[ApiKey.API_VERSIONS])) is not None:
            knowledge.learn_features(await self._features(connection, spoken.high))
        if METADATA_VERSIONS.intersection(knowledge.versions.get(ApiKey.METADATA, VersionRange(0, 0))) is None:
            return f"{connection.address} is older than Kafka 0.11: asking it for metadata may create topics"
        self._brokers.learn(await ask(connection, metadata_call(knowledge, (), self._timeout_s), MetadataResponse))
        return None

    def _ask_all_for_versions(self) -> None:
        """Ask each broker that was not asked on its present connection; nobody waits for the answers.

        A broker that can't be reached ends its connection, which soon leads to a visit: the next attempt is later.
        """
        now = asyncio.get_running_loop().time()
        if now < self._all_asked_at + VISIT_EVERY_S:
            return
        self._all_asked_at = now
        for broker_id, address in self._knowledge.brokers.items():
            connection = self._brokers.shared(address)
            if self._asked_versions.get(broker_id) is not connection:
                self._asked_versions[broker_id] = connection
                settle = partial(self._told_versions, broker_id)
                connection.submit(self._call(ApiVersionsRequest(), 0), ApiKey.API_VERSIONS, OUR_CLIENT_ID, settle)

    def _told_versions(self, broker_id: int, outcome: RawResponse | Unreachable | Sent, _: bool) -> None:
        if isinstance(outcome, RawResponse):
            said = decoded(outcome, ApiVersionsResponse, self._knowledge.name)
            if isinstance(said, ApiVersionsResponse) and not said.error_code:
                self._knowledge.learn_versions(broker_id, said)
                self._on_versions()

    async def _features(self, connection: BrokerConnection, version: int) -> ApiVersionsResponse:
        return await self._versions(connection, ApiVersionsRequest(OUR_CLIENT_ID, OUR_VERSION), version)

    async def _versions(
        self, connection: BrokerConnection, question: ApiVersionsRequest, version: int
    ) -> ApiVersionsResponse:
        return await ask(connection, self._call(question, version), ApiVersionsResponse)

    def _call(self, question: ApiVersionsRequest, version: int) -> Call:
        return Call(self._knowledge.name, question, version, timeout_s=self._timeout_s)


def _features_version(said: ApiVersionsResponse) -> int | None:
    """The version of ApiVersions in which this broker reports its features."""
    spoken = next(
        (VersionRange(v.min_version, v.max_version) for v in said.api_keys if v.api_key == ApiKey.API_VERSIONS), None
    )
    common = spoken.intersection(FEATURES) if spoken else None
    return common.high if common else None

"""A cluster that comes and goes: calls find their broker, and nobody waits for a dead one."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mesh.routing import ExactName, ForwardingRule, NameRegex, RoutingTable, RuleVersion, UpstreamCluster
from mesh.stitches import LogPart, StitchedLog
from mesh.stitches import Policy as StitchPolicy
from services.gateway.downstream.tables import View
from services.gateway.requests.knowledge import ClusterKnowledge, VersionRange
from services.gateway.requests.plan import (
    AnyBroker,
    Broker,
    Call,
    Coordinator,
    Lane,
    Outcome,
    RawResponse,
    Target,
    Unreachable,
    Verbatim,
)
from services.gateway.requests.table import HANDLERS
from services.gateway.requests.topic_names import RenamedKnowledge, TopicNames
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.brokers import UpstreamLimits
from services.gateway.upstream.cluster import Cluster
from services.gateway.upstream.clusters import Clusters
from services.gateway.upstream.connection import OUR_CLIENT_ID
from services.gateway.upstream.coordinators import LONGEST_KEY
from services.gateway.upstream.lanes import Lanes
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader, encode_request
from services.gateway.wire.messages import (
    ApiVersionsResponse,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
)
from services.gateway.wire.messages.api_versions import ApiVersion, FinalizedFeatureKey, SupportedFeatureKey
from services.gateway.wire.messages.metadata import MetadataRequestTopic, MetadataResponseBroker
from services.gateway.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.scripted_broker import BROKER_ID, ScriptedBroker, broker

LIMITS = UpstreamLimits(connect_timeout_s=20.0, request_timeout_s=20.0)


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedBroker]:
    async with broker({"apples": 3}, {ApiKey.HEARTBEAT: lambda header, message: HeartbeatResponse()}) as running:
        yield running


@pytest.fixture
async def cluster(scripted: ScriptedBroker) -> AsyncIterator[Cluster]:
    found = Cluster(UpstreamCluster("c1", (scripted.address,), 1), LIMITS, AnswerRoom(1 << 30), lambda: None)
    found.start()
    async with asyncio.timeout(WITHIN_S):
        await found.attempted.wait()
    yield found
    await found.stop()


async def call(cluster: Cluster, target: Target, lanes: Lanes | None = None, lane: Lane = Lane.SHARED) -> Outcome:
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    heartbeat = Call("c1", HeartbeatRequest("g"), 0, target, lane)
    cluster.submit(heartbeat, lanes or Lanes(), "me", lambda o, _: outcome.set_result(o))
    async with asyncio.timeout(WITHIN_S):
        return await outcome


async def up(cluster: Cluster, wanted: bool) -> None:
    await until(lambda: cluster.knowledge.available is wanted, f"the cluster is available: {wanted}")


async def test_a_visit_tells_brokers_and_versions(cluster: Cluster) -> None:
    assert cluster.knowledge.available
    assert list(cluster.knowledge.brokers) == [BROKER_ID]
    assert cluster.knowledge.versions[ApiKey.HEARTBEAT] == VersionRange(0, 4)


async def test_features_are_asked_in_the_version_that_tells_all_of_them() -> None:
    def said(header: RequestHeader, message: object) -> ApiVersionsResponse:
        answer = ApiVersionsResponse(api_keys=[ApiVersion(key, low, high) for key, (low, high) in spoken.items()])
        if header.api_version == 4:
            answer.supported_features = [SupportedFeatureKey("transaction.version", 0, 2)]
        return answer

    spoken = {ApiKey.METADATA: VersionRange(4, 12), ApiKey.API_VERSIONS: VersionRange(0, 5)}
    async with broker({}, {ApiKey.API_VERSIONS: said}) as running:
        cluster = Cluster(UpstreamCluster("c1", (running.address,), 1), LIMITS, AnswerRoom(1 << 30), lambda: None)
        cluster.start()
        async with asyncio.timeout(WITHIN_S):
            await cluster.attempted.wait()
        assert cluster.knowledge.supported_features == {"transaction.version": VersionRange(0, 2)}
        await cluster.stop()


async def test_features_that_are_switched_on_later_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    level = 1

    def said(header: RequestHeader, message: object) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[ApiVersion(ApiKey.METADATA, 4, 12), ApiVersion(ApiKey.API_VERSIONS, 0, 4)],
            finalized_features_epoch=level,
            finalized_features=[FinalizedFeatureKey("transaction.version", level, level)],
        )

    monkeypatch.setattr("services.gateway.upstream.visits.VISIT_EVERY_S", 0.01)
    async with broker({}, {ApiKey.API_VERSIONS: said}) as running:
        cluster = Cluster(UpstreamCluster("c1", (running.address,), 1), LIMITS, AnswerRoom(1 << 30), lambda: None)
        cluster.start()
        await asyncio.wait_for(cluster.attempted.wait(), WITHIN_S)
        assert cluster.knowledge.finalized_features == {"transaction.version": 1}
        level = 2
        await until(lambda: cluster.knowledge.finalized_features == {"transaction.version": 2}, "it is visited again")
        await cluster.stop()


async def test_refresh_learns_leaders_and_creates_nothing(cluster: Cluster, scripted: ScriptedBroker) -> None:
    done: asyncio.Future[Unreachable | None] = asyncio.get_running_loop().create_future()
    cluster.refresh(("apples", "nowhere"), done.set_result)
    assert await done is None
    assert cluster.knowledge.leader("apples", 2) == BROKER_ID
    assert cluster.knowledge.leader("nowhere", 0) is None
    assert not any(m.allow_auto_topic_creation for m in scripted.requests(ApiKey.METADATA))


async def test_metadata_that_passes_by_is_learnt_from(cluster: Cluster) -> None:
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    message = MetadataRequest([MetadataRequestTopic(name="apples")], False)
    cluster.submit(Call("c1", message, 9), Lanes(), None, lambda o, _: outcome.set_result(o))
    await outcome
    assert cluster.knowledge.partition_count("apples") == 3


async def test_a_list_of_all_topics_ends_the_knowledge_of_those_that_are_gone(
    cluster: Cluster, scripted: ScriptedBroker
) -> None:
    """Else a gateway would remember every topic that there ever was, and show it while the cluster is away."""
    scripted.topics = {"apples": 3, "pears": 1}
    await listed(cluster)
    assert set(cluster.knowledge.topics) == {"apples", "pears"}
    edition = cluster.knowledge.leaders_edition
    scripted.topics = {"apples": 3}
    cluster.refresh(("apples",), lambda _: None)
    await listed(cluster)
    assert set(cluster.knowledge.topics) == {"apples"}
    assert set(cluster.knowledge.topic_names.values()) == {"apples"}
    assert cluster.knowledge.leaders_edition != edition


async def listed(cluster: Cluster) -> None:
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    cluster.submit(Call("c1", everything, 12), Lanes(), None, lambda o, _: outcome.set_result(o))
    async with asyncio.timeout(WITHIN_S):
        assert isinstance(await outcome, RawResponse)


async def test_a_coordinator_is_found_once_and_again_when_forgotten(cluster: Cluster, scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.FIND_COORDINATOR] = lambda header, message: FindCoordinatorResponse(
        node_id=BROKER_ID, host="127.0.0.1", port=scripted.port
    )
    coordinator = Coordinator("g")
    for _ in range(3):
        assert not isinstance(await call(cluster, coordinator), Unreachable)
    assert len(scripted.requests(ApiKey.FIND_COORDINATOR)) == 1
    cluster.forget(coordinator)
    await call(cluster, coordinator)
    assert len(scripted.requests(ApiKey.FIND_COORDINATOR)) == 2


async def test_a_coordinator_is_not_remembered_by_a_key_of_any_length(
    cluster: Cluster, scripted: ScriptedBroker
) -> None:
    scripted.scripts[ApiKey.FIND_COORDINATOR] = lambda header, message: FindCoordinatorResponse(
        node_id=BROKER_ID, host="127.0.0.1", port=scripted.port
    )
    for _ in range(2):
        assert not isinstance(await call(cluster, Coordinator("g" * (LONGEST_KEY + 1))), Unreachable)
    assert len(scripted.requests(ApiKey.FIND_COORDINATOR)) == 2


async def test_a_client_s_name_stands_in_no_request_on_the_connection_that_all_clients_share(
    cluster: Cluster, scripted: ScriptedBroker
) -> None:
    """A broker that throttles a client reads nothing more from the connection, whoever else waits there (KIP-219)."""
    await call(cluster, Broker(BROKER_ID))
    await call(cluster, Broker(BROKER_ID), lane=Lane.CLIENT)
    asked = [header.client_id for header, _ in scripted.received if header.api_key == ApiKey.HEARTBEAT]
    assert asked == [OUR_CLIENT_ID, "me"]


async def test_a_group_without_coordinator_is_unreachable(cluster: Cluster, scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.FIND_COORDINATOR] = lambda header, message: FindCoordinatorResponse(error_code=15)
    assert isinstance(await call(cluster, Coordinator("g")), Unreachable)


@pytest.mark.parametrize(
    "refusal", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
)
async def test_who_may_not_ask_for_a_coordinator_hears_it_from_a_broker(
    cluster: Cluster, scripted: ScriptedBroker, refusal: ErrorCode
) -> None:
    """Else a client would wait for a coordinator for ever, where a broker refuses at once."""
    scripted.scripts[ApiKey.FIND_COORDINATOR] = lambda header, message: FindCoordinatorResponse(error_code=refusal)
    scripted.scripts[ApiKey.HEARTBEAT] = lambda header, message: HeartbeatResponse(error_code=refusal)
    for _ in range(2):
        outcome = await call(cluster, Coordinator("g"))
        assert isinstance(outcome, RawResponse)
        assert outcome.decode(HeartbeatResponse).error_code == refusal
    assert len(scripted.requests(ApiKey.FIND_COORDINATOR)) == 2, "the right may be granted at any time"


async def test_a_request_that_cannot_be_written_fails_alone(cluster: Cluster, scripted: ScriptedBroker) -> None:
    """Whoever waits for it hears so, and the connection on which its coordinator is looked for goes on."""
    scripted.scripts[ApiKey.FIND_COORDINATOR] = lambda header, message: FindCoordinatorResponse(
        node_id=BROKER_ID, host="127.0.0.1", port=scripted.port
    )
    assert not isinstance(await call(cluster, Coordinator("g")), Unreachable)
    connections = set(scripted.connections)
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    group = "g" * 40_000
    too_long = Call("c1", HeartbeatRequest(group), 0, Coordinator(group))
    cluster.submit(too_long, Lanes(), "me", lambda o, _: outcome.set_result(o))
    async with asyncio.timeout(WITHIN_S):
        told = await outcome
    assert isinstance(told, Unreachable) and told.never_sent
    assert not isinstance(await call(cluster, Coordinator("g")), Unreachable)
    assert set(scripted.connections) == connections


async def test_each_client_has_connections_of_its_own_for_each_lane(cluster: Cluster, scripted: ScriptedBroker) -> None:
    await call(cluster, Broker(BROKER_ID))
    await until(lambda: len(scripted.connections) == 1, "only the connection for short requests is open")
    clients = Lanes(), Lanes()
    for lanes in clients:
        for lane in (Lane.PRODUCE, Lane.FETCH, Lane.PRODUCE):
            await call(cluster, Broker(BROKER_ID), lanes, lane)
    assert len(scripted.connections) == 1 + 4
    for lanes in clients:
        lanes.close("test ends")


async def test_a_version_that_the_cluster_lacks_is_not_sent(scripted: ScriptedBroker, cluster: Cluster) -> None:
    cluster.knowledge.versions[ApiKey.HEARTBEAT] = VersionRange(1, 2)
    outcome = await call(cluster, Broker(BROKER_ID))
    assert isinstance(outcome, Unreachable)
    assert "Heartbeat v0" in outcome.reason
    assert scripted.requests(ApiKey.HEARTBEAT) == []


async def test_a_dead_cluster_answers_at_once_and_heals_by_itself(cluster: Cluster, scripted: ScriptedBroker) -> None:
    await call(cluster, Broker(BROKER_ID))
    await scripted.stop()
    await up(cluster, False)
    outcome = await asyncio.wait_for(call(cluster, Broker(BROKER_ID)), 0.1)
    assert isinstance(outcome, Unreachable)
    assert outcome.never_sent
    await scripted.start()
    await up(cluster, True)
    assert not isinstance(await call(cluster, Broker(BROKER_ID)), Unreachable)


async def test_a_broker_that_comes_back_newer_is_asked_again_what_it_speaks(
    cluster: Cluster, scripted: ScriptedBroker
) -> None:
    await call(cluster, Broker(BROKER_ID))
    await scripted.stop()
    await up(cluster, False)
    scripted.versions = {**scripted.versions, ApiKey.HEARTBEAT: VersionRange(0, 5)}
    await scripted.start()
    await up(cluster, True)
    assert cluster.knowledge.versions[ApiKey.HEARTBEAT] == VersionRange(0, 5)


@asynccontextmanager
async def pair(first: ScriptedBroker, second: ScriptedBroker) -> AsyncIterator[Cluster]:
    """A cluster of two brokers, which has been visited. The bootstrap address is the second one's."""

    def told(_: RequestHeader, request: MetadataRequest) -> MetadataResponse:
        answer = second.metadata(request)
        answer.brokers = [
            MetadataResponseBroker(broker_id, "127.0.0.1", each.port)
            for broker_id, each in ((BROKER_ID, first), (BROKER_ID + 1, second))
        ]
        return answer

    for each in (first, second):
        each.scripts.setdefault(ApiKey.METADATA, told)
        each.scripts.setdefault(ApiKey.HEARTBEAT, lambda header, message: HeartbeatResponse())
    cluster = Cluster(UpstreamCluster("c1", (second.address,), 1), LIMITS, AnswerRoom(1 << 30), lambda: None)
    cluster.start()
    try:
        async with asyncio.timeout(WITHIN_S):
            await cluster.attempted.wait()
        yield cluster
    finally:
        await cluster.stop()


@pytest.mark.parametrize("older", [0, 1], ids=["the first is older", "the second is older"])
async def test_a_cluster_speaks_what_all_of_its_brokers_speak(older: int) -> None:
    """While brokers are upgraded one by one, a gateway that starts must offer nothing that one of them lacks."""
    async with broker({}) as first, broker({}) as second:
        (first, second)[older].versions |= {ApiKey.HEARTBEAT: VersionRange(0, 3)}
        async with pair(first, second) as cluster:
            await until(lambda: spoken_now(cluster) == VersionRange(0, 3), "the cluster speaks what both speak")


def spoken_now(cluster: Cluster) -> VersionRange:
    return cluster.knowledge.versions[ApiKey.HEARTBEAT]


async def test_an_upgrade_counts_when_the_last_broker_has_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.upstream.visits.VISIT_EVERY_S", 0.01)
    async with broker({}) as first, broker({}) as second:
        for each in (first, second):
            each.versions |= {ApiKey.HEARTBEAT: VersionRange(0, 3)}
        async with pair(first, second) as cluster:
            for each in (first, second):
                assert spoken_now(cluster) == VersionRange(0, 3)
                await each.stop()
                each.versions |= {ApiKey.HEARTBEAT: VersionRange(0, 4)}
                await each.start()
                await until(lambda: each.requests(ApiKey.API_VERSIONS), "the broker is asked again")  # noqa: B023
            await until(lambda: spoken_now(cluster) == VersionRange(0, 4), "both brokers speak the newer version")


async def test_any_broker_means_one_that_answers() -> None:
    """A broker that takes connections and says nothing, as on a machine that hangs, takes the cluster not along."""
    silent = dict.fromkeys([*HANDLERS, ApiKey.METADATA, ApiKey.API_VERSIONS], lambda header, message: None)
    async with broker({}, dict(silent)) as first, broker({}) as second, pair(first, second) as cluster:
        assert isinstance(await call(cluster, Broker(BROKER_ID + 1)), RawResponse)
        outcomes = [await call(cluster, AnyBroker()) for _ in range(3)]
        assert [type(outcome) for outcome in outcomes] == [RawResponse] * 3


async def test_a_fault_of_ours_in_a_visit_is_told_and_the_next_visit_comes(
    cluster: Cluster, scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(knowledge: object, response: object) -> None:
        raise ValueError("made for the test")

    await call(cluster, Broker(BROKER_ID))
    with monkeypatch.context() as patched:
        patched.setattr(ClusterKnowledge, "learn", faulty)
        await scripted.stop()
        await up(cluster, False)
        await scripted.start()
        await until(lambda: "fault of the gateway" in (cluster.knowledge.down or ""), "the fault is told")
    await up(cluster, True)


async def test_clients_connections_end_with_the_cluster(scripted: ScriptedBroker) -> None:
    left = Cluster(UpstreamCluster("c1", (scripted.address,), 1), LIMITS, AnswerRoom(1 << 30), lambda: None)
    left.start()
    await left.attempted.wait()
    lanes = Lanes()
    await call(left, Broker(BROKER_ID), lanes, Lane.PRODUCE)
    [connection] = lanes.connections.values()
    await left.stop()
    assert connection.ended is not None


def tenants(template: str) -> TopicNames:
    rule = ForwardingRule("r", ExactName("pears"), "c1", upstream_topic=template)
    table = RoutingTable(1, [UpstreamCluster("c1", ("c1:9092",), 1)], [RuleVersion(rule, 1.0, 1)])
    return TopicNames("c1", table)


def test_what_a_cluster_keeps_for_itself_has_no_other_name() -> None:
    everything = ForwardingRule("r", NameRegex("(.*)"), "c1", upstream_topic="acme.{1}")
    table = RoutingTable(1, [UpstreamCluster("c1", ("c1:9092",), 1)], [RuleVersion(everything, 1.0, 1)])
    names = TopicNames("c1", table)
    assert (names.upstream("pears"), names.upstream("__transaction_state")) == ("acme.pears", "__transaction_state")
    tenant = ForwardingRule("r", NameRegex(r"acme\.(.*)"), "c1", upstream_topic="{1}")
    table = RoutingTable(1, [UpstreamCluster("c1", ("c1:9092",), 1)], [RuleVersion(tenant, 1.0, 1)])
    assert TopicNames("c1", table).taken_by("__transaction_state") is None


def test_shadows_of_foreign_topics_are_seen_beside_topics_with_other_names() -> None:
    """By their id, or in a list of all: a shadow that a gateway did not make itself. Handlers know what to show."""
    here = ForwardingRule("here", ExactName("pears"), "c1", upstream_topic="apples")
    elsewhere = ForwardingRule("elsewhere", ExactName("bananas"), "c2")
    clusters = [UpstreamCluster("c1", ("c1:9092",), 1), UpstreamCluster("c2", ("c2:9092",), 2)]
    versions = [RuleVersion(rule, float(at), 1) for at, rule in enumerate((here, elsewhere))]
    names = TopicNames("c1", RoutingTable(1, clusters, versions))
    assert names.upstream("bananas") == "bananas"
    assert names.virtual("bananas") == "bananas"
    assert names.virtual("apples") == "pears"
    assert names.virtual("pears") is None, "the cluster's own topic of that name is nobody's"


def test_an_old_part_of_a_log_keeps_its_name() -> None:
    """Whether the topic has moved since then once, or more often."""
    clusters = [UpstreamCluster(name, (f"{name}:9092",), at) for at, name in enumerate(("c1", "c2"), start=1)]
    table = RoutingTable(1, clusters, [RuleVersion(ForwardingRule("r", ExactName("pears"), "c2"), 1.0, 1)])
    parts = (LogPart("c1", "old.pears", 1, (0,), (0,)), LogPart("c2", "pears", 1, (9,), (9,)))
    view = View(table, StitchPolicy([StitchedLog("pears", parts)], 1))
    assert set(view.names) == {"c1"}
    assert view.names["c1"].upstream("pears") == "old.pears"
    assert view.names["c1"].renaming
    assert not View(table, StitchPolicy()).names


async def test_a_foreign_topic_is_not_taken_for_the_one_that_has_its_name_here(
    cluster: Cluster, scripted: ScriptedBroker
) -> None:
    """Offsets of the one would become those of the other."""
    here = ForwardingRule("here", ExactName("pears"), "c1", upstream_topic="apples")
    elsewhere = ForwardingRule("elsewhere", ExactName("apples"), "c2")
    clusters = [UpstreamCluster("c1", ("c1:9092",), 1), UpstreamCluster("c2", ("c2:9092",), 2)]
    versions = [RuleVersion(rule, float(at), 1) for at, rule in enumerate((here, elsewhere))]
    names = TopicNames("c1", RoutingTable(1, clusters, versions))
    outcomes: list[Outcome] = []
    commit = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("pears"), OffsetCommitRequestTopic("apples")])
    cluster.submit(Call("c1", commit, 7), Lanes(), None, lambda o, _: outcomes.append(o), names)
    [told] = outcomes
    assert isinstance(told, Unreachable) and told.never_sent and told.unsupported
    assert "apples" in told.reason and "pears" in told.reason
    assert scripted.requests(ApiKey.OFFSET_COMMIT) == []


async def test_topics_are_called_as_on_the_cluster_below_and_as_by_clients_above(
    cluster: Cluster, scripted: ScriptedBroker
) -> None:
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    message = MetadataRequest([MetadataRequestTopic(name="pears")], False)
    cluster.submit(Call("c1", message, 9), Lanes(), None, lambda o, _: outcome.set_result(o), tenants("apples"))
    answer = await outcome
    assert isinstance(answer, RawResponse)
    assert [topic.name for topic in answer.decode(MetadataResponse).topics] == ["pears"]
    assert scripted.requests(ApiKey.METADATA)[-1].topics[0].name == "apples"
    assert cluster.knowledge.partition_count("apples") == 3
    assert cluster.knowledge.partition_count("pears") is None


async def test_a_request_that_passes_as_it_came_is_written_anew_where_a_topic_has_another_name(
    cluster: Cluster, scripted: ScriptedBroker
) -> None:
    frame = memoryview(bytearray(encode_request(MetadataRequest([MetadataRequestTopic(name="pears")]), 9, 5, "me")))
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    verbatim = Call("c1", Verbatim(frame), 9, api_key=ApiKey.METADATA, raw=True)
    cluster.submit(verbatim, Lanes(), "me", lambda o, _: outcome.set_result(o), tenants("apples"))
    answer = await outcome
    assert isinstance(answer, RawResponse)
    assert [topic.name for topic in answer.decode(MetadataResponse).topics] == ["pears"]
    assert scripted.requests(ApiKey.METADATA)[-1].topics[0].name == "apples"


async def test_one_name_stands_for_several_topics_where_clients_have_names_of_their_own(cluster: Cluster) -> None:
    done: asyncio.Future[Unreachable | None] = asyncio.get_running_loop().create_future()
    cluster.refresh(("pears",), done.set_result, tenants("apples"))
    await done
    ours, others = (RenamedKnowledge(cluster.knowledge, tenants(template)) for template in ("apples", "nowhere"))
    assert ours.leader("pears", 0) == BROKER_ID
    assert (list(ours.topics), ours.topics["pears"].leaders, ours.partition_count("pears")) == (
        ["pears"], ours.leaders("pears"), 3,
    )  # fmt: skip
    assert list(ours.topic_names.values()) == ["pears"]
    assert others.leader("pears", 0) is None
    assert (list(others.topics), list(others.topic_names.values())) == (["apples"], ["apples"])


async def test_what_one_kind_of_clients_doubts_is_doubted_for_all(cluster: Cluster) -> None:
    done: asyncio.Future[Unreachable | None] = asyncio.get_running_loop().create_future()
    cluster.refresh(("apples",), done.set_result)
    await done
    clusters = Clusters(LIMITS)
    clusters.known = {"c1": cluster.knowledge}
    clusters.doubt_topics("c1", ("pears",), tenants("apples"))
    assert cluster.knowledge.leader("apples", 0) is None


async def test_a_name_that_leads_elsewhere_now_is_followed(
    scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The DNS entry of a cluster changes: the address it had is not kept."""
    nowhere = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))
    answers = [[nowhere], [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", scripted.port))]]
    asked: list[str] = []

    def resolve(host: str, port: int, **_: object) -> list[object]:
        if host != "kafka.test":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
        asked.append(host)
        return list(answers[0] if len(asked) < 3 else answers[1])

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    found = Cluster(UpstreamCluster("c1", ("kafka.test:9092",), 1), LIMITS, AnswerRoom(1 << 30), lambda: None)
    found.start()
    try:
        async with asyncio.timeout(WITHIN_S):
            await found.attempted.wait()
        assert not found.knowledge.available
        await up(found, True)
        assert len(asked) >= 3
    finally:
        await found.stop()


async def test_of_several_addresses_of_a_name_a_living_one_is_found(
    scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = (1, 2, scripted.port)

    def resolve(host: str, port: int, **_: object) -> list[object]:
        there = ports if host == "kafka.test" else (port,)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", each)) for each in there]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    found = Cluster(UpstreamCluster("c1", ("kafka.test:9092",), 1), LIMITS, AnswerRoom(1 << 30), lambda: None)
    found.start()
    try:
        await up(found, True)
    finally:
        await found.stop()

"""Each request follows the table that its client sees (by client.id, software, address), and a new one at once."""

import gc

import pytest

from mesh.routing import ClientIdentity, ClientMatch, ExactName, ForwardingRule, Match, RoutingTable, RuleVersion
from mesh.routing import UnmatchedTopics as Unmatched
from services.gateway.downstream.tables import Follower, RunningCanary, Tables
from services.gateway.requests.memory import Session
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from services.gateway.wire.messages.metadata import MetadataRequestTopic
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.test_order import produce, written

MINE = ClientMatch(client_id="mine")


def put_in_force(stage: Stage, *rules: tuple[Match, str, str]) -> None:
    clusters = stage.table(1).clusters.values()
    versions = [
        RuleVersion(ForwardingRule(f"r{rank}", match, cluster, upstream_topic=template), float(rank), 2)
        for rank, (match, cluster, template) in enumerate(rules)
    ]
    stage.gateway.mesh.run_table(RoutingTable(2, clusters, versions))


def takes_records(stage: Stage) -> None:
    for scripted in (stage.c1, stage.c2):
        scripted.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)


def produced(stage: Stage) -> list[list[str]]:
    """Topics, by the cluster's names, that c1 and c2 got records of."""
    return [[m.topic_data[0].name for m in each.requests(ApiKey.PRODUCE)] for each in (stage.c1, stage.c2)]


async def test_one_topic_lives_on_two_clusters_for_two_clients(stage: Stage) -> None:
    takes_records(stage)
    put_in_force(stage, (ExactName("apples", client=MINE), "c2", ""), (ExactName("apples"), "c1", ""))
    for client_id in ("mine", "other"):
        client = await stage.connect()
        answer = await client.ask(produce("apples"), 9, ProduceResponse, client_id=client_id)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert produced(stage) == [["apples"], ["apples"]]


async def test_requests_of_one_connection_count_as_those_of_their_own_client(stage: Stage) -> None:
    takes_records(stage)
    put_in_force(stage, (ExactName("apples", client=MINE), "c2", ""))
    client = await stage.connect()
    codes = []
    for client_id in ("mine", None, "mine"):
        answer = await client.ask(produce("apples"), 9, ProduceResponse, client_id=client_id)
        codes.append(answer.responses[0].partition_responses[0].error_code)
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert produced(stage) == [[], ["apples", "apples"]]


async def test_a_connection_follows_the_next_table_at_its_next_request(stage: Stage) -> None:
    takes_records(stage)
    client = await stage.connect()
    await client.ask(produce("apples"), 9, ProduceResponse, client_id="mine")
    put_in_force(stage, (ExactName("apples", client=MINE), "c2", ""), (ExactName("apples"), "c1", ""))
    await client.ask(produce("apples"), 9, ProduceResponse, client_id="mine")
    assert produced(stage) == [["apples"], ["apples"]]


async def test_software_counts_from_its_api_versions_on(stage: Stage) -> None:
    put_in_force(stage, (ExactName("apples", client=ClientMatch(software_name="sarama")), "c2", ""))
    client = await stage.connect()
    question = MetadataRequest([MetadataRequestTopic(name="apples")], False)
    before = await client.ask(question, 9, MetadataResponse)
    await client.ask(ApiVersionsRequest("sarama", "1.43"), 3, ApiVersionsResponse)
    after = await client.ask(question, 9, MetadataResponse)
    codes = [answer.topics[0].error_code for answer in (before, after)]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


@pytest.mark.parametrize(
    ("network", "found"), [("127.0.0.0/8", True), ("::ffff:127.0.0.1/128", True), ("10.0.0.0/8", False)]
)
async def test_the_network_is_that_of_the_connection(stage: Stage, network: str, found: bool) -> None:
    put_in_force(stage, (ExactName("apples", client=ClientMatch(source_networks=(network,))), "c2", ""))
    client = await stage.connect()
    answer = await client.ask(MetadataRequest([MetadataRequestTopic(name="apples")], False), 9, MetadataResponse)
    assert (answer.topics[0].error_code == ErrorCode.NONE) is found


async def test_tenants_who_share_a_cluster_have_topics_of_one_name(stage: Stage) -> None:
    """What is known of the one's topic (leaders, partitions) is not taken for the other's."""
    takes_records(stage)
    tenants = {"a": "apples", "b": "bananas"}
    put_in_force(stage, *((Unmatched(ClientMatch(client_id=each)), "c1", f"{each}.{{topic}}") for each in tenants))
    stage.c1.topics = {"a.fruit": 1, "b.fruit": 3}
    client = await stage.connect()
    for tenant, partitions in (("a", 1), ("b", 3), ("a", 1)):
        question = MetadataRequest([MetadataRequestTopic(name="fruit")], False)
        answer = await client.ask(question, 9, MetadataResponse, client_id=tenant)
        assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("fruit", partitions)]
        everything = await client.ask(MetadataRequest(None, False), 9, MetadataResponse, client_id=tenant)
        assert [topic.name for topic in everything.topics] == ["fruit"]
        await client.ask(produce("fruit"), 9, ProduceResponse, client_id=tenant)
    assert produced(stage) == [["a.fruit", "b.fruit", "a.fruit"], []]


async def test_an_unmatched_topic_lives_on_the_default_cluster_while_there_is_one(stage: Stage) -> None:
    takes_records(stage)
    client = await stage.connect()
    put_in_force(stage, (ExactName("apples"), "c1", ""), (Unmatched(), "c2", ""))
    assert (await client.ask(produce("bananas"), 9, ProduceResponse)).responses[0].partition_responses[
        0
    ].error_code == 0
    assert produced(stage) == [[], ["bananas"]]
    put_in_force(stage, (ExactName("apples"), "c1", ""))
    refused = (await client.ask(produce("bananas"), 9, ProduceResponse)).responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def some_tables() -> Tables:
    tables = Tables()
    rule = ForwardingRule("r", ExactName("apples", client=ClientMatch(client_id_prefix="m")), "c1")
    tables.run(RoutingTable(1, (), [RuleVersion(rule, 1.0, 1)]))
    return tables


def test_clients_of_one_kind_share_a_view_which_goes_with_the_last_of_them() -> None:
    tables = some_tables()
    one, other = tables.view(ClientIdentity(client_id="m1")), tables.view(ClientIdentity(client_id="m2"))
    assert one is other
    assert tables.view(ClientIdentity(client_id="x")) is not one
    del one, other
    gc.collect()
    assert len(tables._views) == 0


def test_a_view_is_looked_up_again_only_when_something_has_changed() -> None:
    tables, session = some_tables(), Session(address="10.1.2.3")
    follower = Follower(tables, session)
    first = follower.view("m1")
    assert follower.view("m1") is first
    assert follower.client == ClientIdentity(client_id="m1", address="10.1.2.3")
    tables.run(RoutingTable(2))
    assert follower.view("m1").table.revision == 2


def two_tables() -> Tables:
    """Revision 1 is in force, some try revision 2."""
    tables = some_tables()
    tables.try_out(RunningCanary(RoutingTable(2), permille=300))
    return tables


def test_the_share_that_tries_a_table_is_the_same_clients_everywhere() -> None:
    clients = [ClientIdentity(client_id=f"client-{number}") for number in range(1000)]
    here = [two_tables().tries(client) for client in clients]
    assert here == [two_tables().tries(client) for client in clients]
    assert 250 < sum(here) < 350
    assert two_tables().tries(ClientIdentity(address="10.0.0.7")) == two_tables().tries(
        ClientIdentity(client_id="10.0.0.7")
    )


def test_who_tries_a_table_follows_it_until_it_is_given_up_or_in_force() -> None:
    tables = two_tables()
    trying = next(c for n in range(100) if tables.tries(c := ClientIdentity(client_id=f"c{n}")))
    staying = next(c for n in range(100) if not tables.tries(c := ClientIdentity(client_id=f"c{n}")))
    followers = [Follower(tables, Session()) for _ in range(2)]
    clients = (trying.client_id, staying.client_id)

    assert [f.view(c).table.revision for f, c in zip(followers, clients, strict=True)] == [2, 1]
    assert [f.tries for f in followers] == [True, False]
    tables.try_out(None)
    assert [f.view(c).table.revision for f, c in zip(followers, clients, strict=True)] == [1, 1]
    tables.try_out(RunningCanary(RoutingTable(3), permille=300))
    tables.run(RoutingTable(3))
    assert [f.view(c).table.revision for f, c in zip(followers, clients, strict=True)] == [3, 3]
    assert tables.canary is None


def test_a_canary_that_is_sent_again_goes_on_counting() -> None:
    tables = two_tables()
    assert tables.canary is not None
    tables.canary.tried.count(failed=True)
    again = RoutingTable(2)
    tables.try_out(RunningCanary(again, permille=300))
    assert tables.canary.table is again
    assert (tables.canary.tried.answered, tables.canary.tried.failed) == (1, 1)

"""Topics and groups over all clusters: names that clients know, lag, pages, and what is not known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import ShareConsumer

from mesh.rpc import topics, topics_grpc
from services.control.decisions.topics import looking
from tests.clients.streams.driver import WordCount
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.readers import Readers
from tests.integration.control.world import CALL, WITHIN, World, create_topic, refused, until
from tests.integration.gateway.sharing import set_up


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question goes to the clusters."""
    monkeypatch.setattr(looking, "TOPICS_KEPT_S", 0.0)
    monkeypatch.setattr(looking, "GROUPS_KEPT_S", 0.0)


@pytest.fixture
def readers(
    mesh_of_two: World, unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> Readers:
    prefix = unique_name("shop")
    made = Readers(f"{prefix}-readers", f"{prefix}.apples", f"{prefix}.bananas", kafka_c1.bootstrap, kafka_c2.bootstrap)
    create_topic(kafka_c1.bootstrap, made.apples, 2, **{"retention.ms": "3600000"})
    create_topic(kafka_c2.bootstrap, f"old.{made.bananas}", 3)
    return made


@pytest.fixture
async def routed(mesh_of_two: World, readers: Readers) -> Readers:
    """Apples on c1; bananas on c2 under another name."""
    prefix = readers.apples.removesuffix("apples")
    await mesh_of_two.set_rule({"topic": readers.bananas}, {"target_cluster": "c2", "upstream_topic": "old.{topic}"})
    await mesh_of_two.set_rule({"topic_prefix": prefix}, {"target_cluster": "c1"})
    return readers


def service(world: World) -> topics_grpc.TopicServiceAsyncStub:
    return topics_grpc.TopicServiceStub(world.channel)


def groups(world: World) -> topics_grpc.GroupServiceAsyncStub:
    return topics_grpc.GroupServiceStub(world.channel)


async def until_listed(world: World, request: topics.ListGroupsRequest, **wanted: object) -> None:
    """Until the list has one group with these fields. While a broker is slow, a group has no members there."""

    async def is_listed() -> bool:
        found = (await groups(world).ListGroups(request, timeout=CALL)).groups
        return [{name: getattr(each, name) for name in wanted} for each in found] == [wanted]

    await until(is_listed, f"the list has one group with {wanted}")


async def listed(world: World, **request: Any) -> topics.ListTopicsResponse:
    return await service(world).ListTopics(topics.ListTopicsRequest(**request), timeout=CALL)


async def test_topics_are_listed_by_the_names_that_clients_know(mesh_of_two: World, routed: Readers) -> None:
    prefix = routed.apples.removesuffix("apples")
    answer = await listed(mesh_of_two, prefix=prefix)
    assert [(each.name, each.cluster, each.partitions) for each in answer.topics] == [
        (f"topics/{routed.apples}", "c1", 2),
        (f"topics/{routed.bananas}", "c2", 3),
    ]
    assert answer.topics[1].upstream_topic == f"old.{routed.bananas}"
    assert answer.total == 2
    assert not answer.problems
    by_size = await listed(mesh_of_two, prefix=prefix, order=topics.TOPIC_ORDER_PARTITIONS)
    assert [each.partitions for each in by_size.topics] == [3, 2]
    assert [each.cluster for each in (await listed(mesh_of_two, prefix=prefix, cluster="c2")).topics] == ["c2"]
    named = await listed(mesh_of_two, topics=[routed.bananas, f"{prefix}none"])
    assert [each.name for each in named.topics] == [f"topics/{routed.bananas}"]
    await refused(listed(mesh_of_two, topics=["x"] * 1001), grpc.StatusCode.INVALID_ARGUMENT, "topics")
    assert [each.name for each in (await listed(mesh_of_two, prefix=prefix, part="app")).topics] == [
        f"topics/{routed.apples}"
    ]


async def test_pages_of_a_list_have_each_topic_once(
    mesh_of_two: World, routed: Readers, kafka_c1: KafkaCluster
) -> None:
    prefix = routed.apples.removesuffix("apples")
    for number in range(5):
        create_topic(kafka_c1.bootstrap, f"{prefix}pears-{number}", 1)
    for order in (topics.TOPIC_ORDER_NAME, topics.TOPIC_ORDER_CLUSTER, topics.TOPIC_ORDER_PARTITIONS):
        names, token = [], ""
        while True:
            answer = await listed(mesh_of_two, prefix=prefix, page_size=3, page_token=token, order=order)
            names += [each.name for each in answer.topics]
            token = answer.next_page_token
            if not token:
                break
        assert len(names) == len(set(names)) == answer.total == 7
    text = "not a token of this list"
    other = await listed(mesh_of_two, prefix=prefix, page_size=3)
    wrong = listed(mesh_of_two, prefix=prefix, part="x", page_token=other.next_page_token)
    await refused(wrong, grpc.StatusCode.INVALID_ARGUMENT, text)


async def test_a_topic_has_its_settings_and_the_groups_that_read_it(mesh_of_two: World, routed: Readers) -> None:
    await routed.write(routed.apples, 10, partition=0)
    await routed.write(routed.apples, 4, partition=1)
    await routed.commit(routed.apples, 8, 1)
    found = await service(mesh_of_two).GetTopic(topics.GetTopicRequest(name=f"topics/{routed.apples}"), timeout=CALL)
    [reader] = found.readers
    assert (reader.group, reader.partitions, reader.lag) == (routed.group, 2, 5)
    assert (found.topic.groups, found.topic.lag) == (1, 5)
    settings = {each.name: each for each in found.settings}
    assert settings["retention.ms"].value == "3600000"
    assert settings["retention.ms"].own
    assert not settings["cleanup.policy"].own
    [shown] = (await listed(mesh_of_two, prefix=routed.apples, groups=True)).topics
    assert (shown.groups, shown.lag) == (1, 5)
    [unasked] = (await listed(mesh_of_two, prefix=routed.apples)).topics
    assert not unasked.HasField("groups"), "nobody asked for groups"


async def test_topics_of_both_clusters_have_their_sizes(mesh_of_two: World, routed: Readers) -> None:
    """A batch of one small record has some 75 bytes."""
    await routed.write(routed.apples, 10, partition=1)
    prefix = routed.apples.removesuffix("apples")
    apples, bananas = (await listed(mesh_of_two, prefix=prefix, sizes=True)).topics
    assert bananas.HasField("size_bytes")
    assert bananas.size_bytes == 0
    assert 100 < apples.size_bytes < 1000
    [unasked] = (await listed(mesh_of_two, prefix=routed.apples)).topics
    assert not unasked.HasField("size_bytes"), "nobody asked for sizes"
    found = await service(mesh_of_two).GetTopic(topics.GetTopicRequest(name=f"topics/{routed.apples}"), timeout=CALL)
    assert found.topic.size_bytes == apples.size_bytes


async def test_a_topic_that_is_nowhere_or_absent_is_not_found(mesh_of_two: World, routed: Readers) -> None:
    for name, text in (("nowhere-at-all", "lives nowhere"), (f"{routed.apples}-2", "does not exist on cluster 'c1'")):
        request = topics.GetTopicRequest(name=f"topics/{name}")
        await refused(service(mesh_of_two).GetTopic(request, timeout=CALL), grpc.StatusCode.NOT_FOUND, text)


async def test_a_group_over_two_clusters_has_its_members_and_positions(mesh_of_two: World, routed: Readers) -> None:
    """Its offsets of bananas are on c2, under the name there."""
    await routed.write(routed.apples, 10, partition=0)
    bananas = f"old.{routed.bananas}"
    routed.homes[bananas] = routed.homes[routed.bananas]
    await routed.write(bananas, 6, partition=2)
    await routed.commit(bananas, 0, 0, 2)
    await routed.commit(routed.apples, 3, 0)
    async with routed.member("billing-1"):
        request = topics.GetGroupRequest(name=f"groups/{routed.group}")
        found = await groups(mesh_of_two).GetGroup(request, timeout=CALL)
        assert found.group.home == "c1"
        assert found.group.state == topics.CONSUMER_GROUP_STATE_STABLE
        assert list(found.group.clusters) == ["c1", "c2"]
        assert found.group.lag == 7 + 4
        [member] = found.members
        assert (member.client_id, member.partitions) == ("billing-1", 2)
        positions = [(each.topic, each.partition, each.cluster, each.committed, each.end) for each in found.positions]
        assert (routed.apples, 0, "c1", 3, 10) in positions
        assert (routed.bananas, 2, "c2", 2, 6) in positions
        state = topics.CONSUMER_GROUP_STATE_STABLE
        listing = topics.ListGroupsRequest(part=routed.group, state=state)
        await until_listed(mesh_of_two, listing, name=f"groups/{routed.group}", members=1, lag=11)
    empty = topics.ListGroupsRequest(part=routed.group, state=topics.CONSUMER_GROUP_STATE_EMPTY)
    await until_listed(mesh_of_two, empty, name=f"groups/{routed.group}")


async def test_a_share_group_has_its_members_and_its_lag(mesh_of_two: World, routed: Readers) -> None:
    """Its lag is counted from the first record that it has not settled."""
    await routed.write(routed.apples, 5, partition=0)
    await asyncio.to_thread(set_up, routed.homes[routed.apples], routed.group)
    own = {"client.id": "packing-1", "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({"bootstrap.servers": routed.homes[routed.apples], "group.id": routed.group, **own})
    consumer.subscribe([routed.apples])
    try:
        read = 0

        async def all_are_read() -> bool:
            nonlocal read
            for each in await asyncio.to_thread(consumer.poll, 0.5):
                consumer.acknowledge(each)
                read += 1
            return read == 5

        await until(all_are_read, "the share group has read five records", within=2 * WITHIN)
        await asyncio.to_thread(consumer.commit_sync, WITHIN)
        await routed.write(routed.apples, 3, partition=0)
        request = topics.GetGroupRequest(name=f"groups/{routed.group}")

        async def settled() -> bool:
            now = await groups(mesh_of_two).GetGroup(request, timeout=CALL)
            return [(each.committed, each.end) for each in now.positions if each.partition == 0] == [(5, 8)]

        await until(settled, "the cluster has written what the group settled")
        found = await groups(mesh_of_two).GetGroup(request, timeout=CALL)
        assert found.group.type == topics.CONSUMER_GROUP_TYPE_SHARE
        assert found.group.state == topics.CONSUMER_GROUP_STATE_STABLE, "its member has what it is given"
        assert (found.group.home, found.group.lag) == ("c1", 3)
        [member] = found.members
        assert (member.client_id, member.partitions) == ("packing-1", 2)
        listing = topics.ListGroupsRequest(part=routed.group)
        await until_listed(mesh_of_two, listing, type=topics.CONSUMER_GROUP_TYPE_SHARE, members=1, lag=3)
        topic = topics.GetTopicRequest(name=f"topics/{routed.apples}")
        [reader] = (await service(mesh_of_two).GetTopic(topic, timeout=CALL)).readers
        assert (reader.group, reader.lag) == (routed.group, 3)
    finally:
        await asyncio.to_thread(consumer.close)


async def test_a_streams_group_has_its_members_and_its_lag(
    mesh_of_two: World, routed: Readers, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    c1, output, group = routed.homes[routed.apples], unique_name("counted"), unique_name("counters")
    create_topic(c1, output, 1)
    count = WordCount(c1, group, "at_least_once", tmp_path, routed.apples, output, "streams")
    request = topics.GetGroupRequest(name=f"groups/{group}")
    async with count.running():
        await routed.write(routed.apples, 4, partition=0)

        async def read_all() -> bool:
            try:
                now = await groups(mesh_of_two).GetGroup(request, timeout=CALL)
            except grpc.aio.AioRpcError as error:
                assert error.code() == grpc.StatusCode.NOT_FOUND, "the application has not joined yet"
                return False
            return (routed.apples, 4) in [(each.topic, each.committed) for each in now.positions]

        await until(read_all, "the application has committed what it read", within=4 * WITHIN)
        streams, stable = topics.CONSUMER_GROUP_TYPE_STREAMS, topics.CONSUMER_GROUP_STATE_STABLE

        async def has_its_tasks() -> bool:  # two of each of two subtopologies
            found = await groups(mesh_of_two).GetGroup(request, timeout=CALL)
            assert found.group.type == streams
            return found.group.state == stable and sum(each.partitions for each in found.members) == 4

        await until(has_its_tasks, "the group is stable with its tasks")
        members = len((await groups(mesh_of_two).GetGroup(request, timeout=CALL)).members)
        listing = topics.ListGroupsRequest(part=group, state=stable)
        await until_listed(mesh_of_two, listing, type=streams, members=members)


async def test_a_group_that_nobody_knows_is_not_found(mesh_of_two: World) -> None:
    request = topics.GetGroupRequest(name="groups/nobody-at-all")
    await refused(groups(mesh_of_two).GetGroup(request, timeout=CALL), grpc.StatusCode.NOT_FOUND, "no cluster")


async def test_offsets_that_a_move_left_behind_do_not_count(
    mesh_of_two: World, routed: Readers, kafka_c2: KafkaCluster
) -> None:
    await routed.write(routed.apples, 10, partition=0)
    await routed.commit(routed.apples, 3, 0)
    create_topic(kafka_c2.bootstrap, routed.apples, 2)
    prefix = routed.apples.removesuffix("apples")
    await mesh_of_two.set_rule({"topic_prefix": prefix}, {"target_cluster": "c2"}, accept_skip=True)
    found = await service(mesh_of_two).GetTopic(topics.GetTopicRequest(name=f"topics/{routed.apples}"), timeout=CALL)
    assert found.topic.cluster == "c2"
    assert not found.readers


async def test_a_cluster_that_is_away_is_named_and_the_others_are_listed(mesh_of_two: World, routed: Readers) -> None:
    await mesh_of_two.register("c3", "127.0.0.1:1", allow_unreachable=True)
    answer = await listed(mesh_of_two, prefix=routed.apples, groups=True)
    assert len(answer.topics) == 1
    assert any("'c3'" in each for each in answer.problems)

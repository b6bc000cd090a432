"""KIP-848 through the gateway: the home's coordinator assigns, by the mesh's topic ids, and never lacks a topic."""

from __future__ import annotations

import pytest

from mesh.routing import ClientMatch, ExactName, ForwardingRule, NamePrefix, RoutingTable, RuleVersion, Subject
from services.gateway.requests.groups import consumer_group_member, describe_groups
from services.gateway.requests.groups.group_kinds import CONSUMER
from services.gateway.requests.groups.group_subscription import lacking
from services.gateway.requests.groups.shadow_topics import MARK, MOST_SHADOWS
from services.gateway.requests.knowledge import TopicKnowledge, VersionRange
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Call, Forget, Refresh, Unreachable
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    MetadataResponse,
)
from services.gateway.wire.messages.consumer_group_describe import Assignment as DescribedAssignment
from services.gateway.wire.messages.consumer_group_describe import DescribedGroup, Member
from services.gateway.wire.messages.consumer_group_describe import TopicPartitions as DescribedPartitions
from services.gateway.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from services.gateway.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopicResult
from services.gateway.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest
from services.gateway.wire.messages.metadata import MetadataResponseTopic
from tests.unit.gateway.requests.lookups import EMPTY, MEMBERS, look_up
from tests.unit.gateway.requests.playbook import Playbook, World


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"]}, partitions=3)


def real_id(topic: str) -> bytes:
    return topic.encode().ljust(16)


def shown_id(topic: str) -> bytes:
    return mesh_topic_id("mesh-id", topic)


def joins(*topics: str, regex: str | None = None, epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(topics) or None,
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )


def assigned(*topics: str) -> ConsumerGroupHeartbeatResponse:
    given = [TopicPartitions(topic_id=real_id(topic), partitions=[0, 1]) for topic in topics]
    return ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1, assignment=Assignment(topic_partitions=given))


def play(world: World, message: ConsumerGroupHeartbeatRequest, version: int = 1) -> Playbook:
    return Playbook(consumer_group_member.handle, message, version, world.view())


def heartbeat_in(book: Playbook) -> Call:
    [call] = book.asked()
    assert isinstance(call.message, ConsumerGroupHeartbeatRequest)
    return call


def ids_in(answer: ConsumerGroupHeartbeatResponse) -> list[bytes]:
    assert answer.assignment is not None
    return [topic.topic_id for topic in answer.assignment.topic_partitions]


def with_shadows(world: World, home: str = "c1") -> World:
    world.add_rule(ForwardingRule("g-home", ExactName("g", Subject.GROUP), home, shadow_topics=True))
    return world


def without_shadows(world: World, home: str = "c1") -> World:
    world.add_rule(ForwardingRule("g-home", ExactName("g", Subject.GROUP), home))
    return world


def looked_at(world: World) -> None:
    """The gateway has just compared the group's subscriptions with its home's topics."""
    world.memory.shadows_seen_to.put("g", True, world.now)


def shadow(world: World, topic: str, cluster: str, partitions: int) -> None:
    known = TopicKnowledge(topic, real_id(topic), (1,) * partitions)
    world.clusters[cluster].topics[topic] = known
    world.clusters[cluster].topic_names[known.topic_id] = topic


def test_a_member_joins_where_its_topics_are_and_sees_their_ids_in_the_mesh(world: World) -> None:
    book = play(world, joins("bananas"))
    look_up(book)
    assert heartbeat_in(book).cluster == "c2"
    book.answered(assigned("bananas"))
    assert ids_in(book.answer) == [shown_id("bananas")]
    assert book.answer.member_epoch == 1


def test_what_a_member_owns_is_told_to_its_coordinator_by_the_clusters_ids(world: World) -> None:
    looked_at(world)
    world.memory.group_homes.put("g", "c1", world.now)
    message = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=3,
        topic_partitions=[
            TopicPartitions(topic_id=shown_id("apples"), partitions=[0]),
            TopicPartitions(topic_id=shown_id("bananas"), partitions=[1]),
        ],
    )
    call = heartbeat_in(play(world, message))
    assert isinstance(call.message, ConsumerGroupHeartbeatRequest)
    assert call.message.topic_partitions == [TopicPartitions(topic_id=real_id("apples"), partitions=[0])]


def test_a_heartbeat_that_changes_nothing_has_the_group_looked_at_now_and_then(world: World) -> None:
    world.memory.group_homes.put("g", "c1", world.now)
    beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    first = play(world, beat)
    assert {(call.cluster, call.key) for call in first.asked()} == {("c1", ApiKey.CONSUMER_GROUP_DESCRIBE)}
    first.answered(described("apples"))
    assert heartbeat_in(first).cluster == "c1"
    book = play(world, beat)
    book.answered(ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=3))
    assert (book.answer.member_epoch, book.answer.assignment, book.noted) == (3, None, [])


def test_an_id_that_the_gateway_has_not_seen_is_asked_for_at_the_home(world: World) -> None:
    book = play(world, joins("apples"))
    look_up(book)
    del world.clusters["c1"].topic_names[real_id("apples")]
    book.answered(assigned("apples"))
    [call] = book.asked()
    assert (call.cluster, call.key) == ("c1", ApiKey.METADATA)
    world.clusters["c1"].topic_names[real_id("apples")] = "apples"
    book.answered(MetadataResponse())
    assert ids_in(book.answer) == [shown_id("apples")]


@pytest.mark.parametrize(
    "told",
    [
        Unreachable("c1", "connection lost"),
        MetadataResponse(
            topics=[MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id=b"apples".ljust(16))]
        ),
    ],
    ids=["a broker that is gone", "a broker that has not heard of a new topic yet"],
)
def test_an_assignment_that_cannot_be_told_is_asked_for_again(
    world: World, told: Unreachable | MetadataResponse
) -> None:
    """Its coordinator tells it once, and again to who has heard an error: a part that is left out is left for good."""
    book = play(world, joins("apples"))
    look_up(book)
    del world.clusters["c1"].topic_names[real_id("apples")]
    book.answered(assigned("apples"))
    book.answered(told)
    assert (book.answer.error_code, book.answer.assignment) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)


def test_topics_of_no_rule_are_not_handed_out(world: World) -> None:
    shadow(world, "strangers", "c1", 3)
    book = play(world, joins("apples"))
    look_up(book)
    book.answered(assigned("apples", "strangers"))
    assert ids_in(book.answer) == [shown_id("apples")]


@pytest.mark.parametrize(
    ("software", "code", "waits"),
    [
        ("apache-kafka-java", ErrorCode.INVALID_REQUEST, False),
        ("librdkafka", ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
        ("confluent-kafka-python", ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
    ],
)
def test_a_subscription_that_spans_clusters_is_refused_by_their_names(
    world: World, software: str, code: ErrorCode, waits: bool
) -> None:
    """A rule about the group that does not give it shadow topics forbids them."""
    world.session = Session("127.0.0.1:5", "test", software, "4.0")
    book = play(without_shadows(world), joins("apples", "bananas"))
    if waits:
        assert book.gathers().wait_s == consumer_group_member.RETRY_PAUSE_S
        book.answered()
    assert book.answer.error_code == code
    assert book.answer.error_message == worded(
        code,
        "group g lives on cluster c1, but subscribes to topics of other clusters (cluster c2: bananas): "
        "use group.protocol=classic, or a rule about the group with shadow_topics",
    )


def test_a_second_member_joins_where_the_group_has_members(world: World) -> None:
    book = play(world, joins("bananas"))
    living = DescribedGroup(group_id="g", group_state="Stable", members=[Member(member_id="other")])
    look_up(book, {("c1", ApiKey.CONSUMER_GROUP_DESCRIBE): living})
    assert {(call.cluster, call.key) for call in book.asked()} == {("c1", ApiKey.CREATE_TOPICS)}


def test_an_empty_group_goes_where_its_topics_are(world: World) -> None:
    book = play(world, joins("bananas"))
    look_up(book, c1=EMPTY)
    assert heartbeat_in(book).cluster == "c2"


def test_a_group_that_was_remembered_elsewhere_is_looked_up_when_a_member_comes_for_other_topics(world: World) -> None:
    looked_at(world)
    world.memory.group_homes.put("g", "c1", world.now)
    book = play(world, joins("bananas"))
    look_up(book, c1=EMPTY)
    assert heartbeat_in(book).cluster == "c2"
    book.answered(assigned("bananas"))
    goes_on = play(world, ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1))
    living = DescribedGroup(group_id="g", group_state="Stable", members=[Member(member_id="m")])
    look_up(goes_on, {("c2", ApiKey.CONSUMER_GROUP_DESCRIBE): living}, c1=EMPTY)
    assert heartbeat_in(goes_on).cluster == "c2"


def test_a_topic_that_moved_away_goes_on_by_the_partitions_it_left(world: World) -> None:
    shadow(world, "bananas", "c1", 3)
    book = play(without_shadows(world), joins("apples", "bananas"))
    assert heartbeat_in(book).cluster == "c1"
    book.answered(assigned("apples", "bananas"))
    assert ids_in(book.answer) == [shown_id("apples"), shown_id("bananas")]


def test_without_shadows_one_that_has_grown_since_does_not(world: World) -> None:
    shadow(without_shadows(world), "bananas", "c1", 2)
    book = play(world, joins("apples", "bananas"))
    assert book.answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("regex", "home"), [("app.*", "c1"), ("bana.*", "c2"), ("nothing", "c1"), ("(", "c1")])
def test_an_expression_goes_where_all_that_it_matches_lives(world: World, regex: str, home: str) -> None:
    book = play(world, joins(regex=regex))
    if regex != "(":
        assert {call.key for call in book.asked()} == {ApiKey.METADATA}
        book.answered(MetadataResponse(), MetadataResponse())
    look_up(book)
    call = heartbeat_in(book)
    assert isinstance(call.message, ConsumerGroupHeartbeatRequest)
    assert (call.cluster, call.message.subscribed_topic_regex) == (home, regex)


def test_an_expression_that_matches_topics_of_two_clusters_needs_shadows(world: World) -> None:
    book = play(world, joins(regex=".*s"))
    book.answered(MetadataResponse(), MetadataResponse())
    look_up(book)
    [call] = book.asked()
    assert isinstance(call.message, CreateTopicsRequest)
    assert (call.cluster, [topic.name for topic in call.message.topics]) == ("c1", ["bananas"])
    refused = play(without_shadows(world), joins(regex=".*s"))
    refused.answered(MetadataResponse(), MetadataResponse())
    assert "cluster c2: bananas" in str(refused.answer.error_message)


def many_bananas(count: int) -> World:
    return World({"c1": ["apples"], "c2": [f"bananas-{number:04}" for number in range(count)]}, partitions=3)


def test_an_expression_that_would_need_too_many_shadows_is_refused_and_counted() -> None:
    world, faults = many_bananas(MOST_SHADOWS + 1), list[str]()
    world.memory.on_shadow_fault = faults.append
    book = play(world, joins(regex=".*"))
    book.answered(MetadataResponse(), MetadataResponse())
    look_up(book)
    assert book.answer.error_code == ErrorCode.INVALID_REQUEST
    assert "would need shadows of 1001 topics on cluster c1, and may have 1000" in str(book.answer.error_message)
    assert "bananas-0019 and 981 more" in str(book.answer.error_message)
    assert faults == ["too_many"]


def test_a_subscription_whose_shadows_exist_already_goes_on_however_many_they_are() -> None:
    world = many_bananas(MOST_SHADOWS + 1)
    for topic in list(world.clusters["c2"].topics):
        shadow(world, topic, "c1", 3)
    book = play(world, joins(regex=".*"))
    book.answered(MetadataResponse(), MetadataResponse())
    look_up(book)
    assert heartbeat_in(book).cluster == "c1"


def test_an_expression_does_not_reach_topics_by_names_that_their_cluster_does_not_know() -> None:
    world = World({"c1": ["apples"]})
    world.add_rule(ForwardingRule("renaming", NamePrefix("b"), "c1", upstream_topic="x-{topic}"))
    shadow(world, "bananas", "c1", 3)
    book = play(world, joins(regex="b.*"))
    book.answered(MetadataResponse())
    assert book.answer.error_code == ErrorCode.INVALID_REQUEST
    assert "other names on their cluster (bananas)" in str(book.answer.error_message)


def test_a_topic_that_exists_nowhere_yet_is_the_coordinators_business(world: World) -> None:
    del world.clusters["c2"].topics["bananas"]
    book = play(world, joins("apples", "bananas"))
    look_up(book, c1=MEMBERS)
    assert heartbeat_in(book).cluster == "c1"
    assert Refresh("c2", ("bananas",)) in book.noted


def test_an_owner_that_was_never_seen_is_waited_for(world: World) -> None:
    del world.clusters["c2"].topics["bananas"]
    away = Unreachable("c2", "down")
    plan = lacking(["apples", "bananas"], "c1", world.view())
    assert plan.send(None) == Refresh("c1", ("bananas",))
    assert plan.send(None) == Refresh("c2", ("bananas",))
    with pytest.raises(StopIteration) as ended:
        plan.send(away)
    assert ended.value.value is away


def test_a_home_that_is_away_sends_the_member_to_find_its_coordinator_again(world: World) -> None:
    looked_at(world)
    world.memory.group_homes.put("g", "c1", world.now)
    book = play(world, ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3))
    book.all_unreachable()
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert any(isinstance(each, Forget) for each in book.noted)


def test_a_home_that_is_too_old_says_so(world: World) -> None:
    world.clusters["c1"].versions = {ApiKey.DESCRIBE_GROUPS: VersionRange(0, 5)}
    book = play(world, joins("apples"))
    look_up(book)
    assert book.answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "cluster c1" in str(book.answer.error_message)


def created(*topics: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic) for topic in topics])


def described(*topics: str) -> ConsumerGroupDescribeResponse:
    member = Member(member_id="m", subscribed_topic_names=list(topics))
    group = DescribedGroup(group_id="g", group_state="Stable", members=[member])
    return ConsumerGroupDescribeResponse(groups=[group])


@pytest.mark.parametrize("by_rule", [False, True])
def test_the_home_gets_shadows_of_foreign_topics(world: World, by_rule: bool) -> None:
    book = play(with_shadows(world) if by_rule else world, joins("apples", "bananas"))
    if not by_rule:
        look_up(book)
    [call] = book.asked()
    assert isinstance(call.message, CreateTopicsRequest)
    [topic] = call.message.topics
    assert (call.cluster, topic.name, topic.num_partitions, topic.replication_factor) == ("c1", "bananas", 3, -1)
    assert [(config.name, config.value) for config in topic.configs] == [MARK]
    shadow(world, "bananas", "c1", 3)
    book.answered(created("bananas"))
    assert heartbeat_in(book).cluster == "c1"
    book.answered(assigned("apples", "bananas"))
    assert ids_in(book.answer) == [shown_id("apples"), shown_id("bananas")]


def test_a_shadow_that_another_gateway_has_just_made_is_as_good(world: World) -> None:
    book = play(with_shadows(world), joins("apples", "bananas"))
    twice = CreatableTopicResult(name="bananas", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
    book.answered(CreateTopicsResponse(topics=[twice]))
    assert heartbeat_in(book).cluster == "c1"


def test_a_shadow_that_cannot_be_made_refuses_the_group_with_the_clusters_reason(world: World) -> None:
    book = play(with_shadows(world), joins("apples", "bananas"))
    no = CreatableTopicResult(name="bananas", error_code=ErrorCode.POLICY_VIOLATION, error_message="no more topics")
    book.answered(CreateTopicsResponse(topics=[no]))
    assert book.answer.error_code == ErrorCode.INVALID_REQUEST
    assert "no more topics" in str(book.answer.error_message)


def test_a_cluster_that_makes_no_shadow_for_a_group_without_a_rule_is_named_in_its_refusal(world: World) -> None:
    book = play(world, joins("apples", "bananas"))
    look_up(book)
    no = CreatableTopicResult(name="bananas", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message="no right")
    book.answered(CreateTopicsResponse(topics=[no]))
    assert book.answer.error_code == ErrorCode.INVALID_REQUEST
    assert book.answer.error_message == worded(
        ErrorCode.INVALID_REQUEST,
        "group g lives on cluster c1, but subscribes to topics of other clusters (cluster c2: bananas): "
        "use group.protocol=classic, because cluster c1 made no shadow of topic bananas: error 29, no right",
    )


BUSY = CreateTopicsResponse(topics=[CreatableTopicResult(name="bananas", error_code=ErrorCode.NOT_CONTROLLER)])


@pytest.mark.parametrize("obstacle", [Unreachable("c1", "busy"), BUSY], ids=["a silent controller", "an election"])
def test_an_obstacle_that_passes_delays_who_joins_and_fences_no_member(
    world: World, obstacle: Unreachable | CreateTopicsResponse
) -> None:
    looked_at(world)
    world.memory.group_homes.put("g", "c1", world.now)
    book = play(world, joins("apples", "bananas"))
    book.answered(obstacle)
    assert book.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    belongs = play(world, joins("apples", "bananas", epoch=3))
    belongs.answered(obstacle)
    assert heartbeat_in(belongs).cluster == "c1"


def test_a_member_leaves_whatever_its_home_lacks(world: World) -> None:
    world.memory.group_homes.put("g", "c1", world.now)
    assert heartbeat_in(play(without_shadows(world), joins("apples", "bananas", epoch=-1))).cluster == "c1"


def test_a_home_without_such_groups_gets_no_shadows(world: World) -> None:
    world.clusters["c1"].versions = {ApiKey.DESCRIBE_GROUPS: VersionRange(0, 5)}
    book = play(world, joins("apples", "bananas"))
    look_up(book)
    assert book.answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_topic_of_other_clients_is_no_shadow_and_is_not_changed(world: World) -> None:
    """Bananas live on c1 for clients of another kind, with fewer partitions than where they live for this one."""
    shadow(with_shadows(world), "bananas", "c1", 2)
    theirs = ForwardingRule("theirs", ExactName("bananas", client=ClientMatch(client_id="other")), "c1")
    versions = [RuleVersion(theirs, -1.0, 1), *world.table.versions]
    world.table = RoutingTable(world.table.revision, world.table.clusters.values(), versions)
    book = play(world, joins("apples", "bananas"))
    assert book.answer.error_code == ErrorCode.INVALID_REQUEST
    assert "other clients have topics on cluster c1 that are called as the shadows would be: bananas" in str(
        book.answer.error_message
    )


@pytest.mark.parametrize("by_rule", [False, True])
def test_a_shadow_grows_with_its_topic_at_a_heartbeat_that_says_nothing(world: World, by_rule: bool) -> None:
    world.memory.group_homes.put("g", "c1", world.now)
    shadow(with_shadows(world) if by_rule else world, "bananas", "c1", 2)
    beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    book = play(world, beat)
    book.answered(described("apples", "bananas"))
    [call] = book.asked()
    assert isinstance(call.message, CreatePartitionsRequest)
    assert (call.cluster, [(topic.name, topic.count) for topic in call.message.topics]) == ("c1", [("bananas", 3)])
    book.answered(CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="bananas")]))
    heartbeat_in(book)
    # and is looked at again only after a while
    heartbeat_in(play(world, beat))
    world.now += 31
    assert {call.key for call in play(world, beat).asked()} == {ApiKey.CONSUMER_GROUP_DESCRIBE}


def test_a_consumer_group_is_described_where_it_lives_by_the_meshs_ids(world: World) -> None:
    book = Playbook(
        describe_groups.handle_consumer_groups, ConsumerGroupDescribeRequest(group_ids=["g"]), 1, world.view()
    )
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    member = Member(
        member_id="m",
        assignment=DescribedAssignment(
            topic_partitions=[DescribedPartitions(topic_id=real_id("bananas"), topic_name="bananas", partitions=[0])]
        ),
    )
    living = DescribedGroup(group_id="g", group_state="Stable", members=[member])
    look_up(book, {("c2", ApiKey.CONSUMER_GROUP_DESCRIBE): living})
    [group] = book.answer.groups
    assert group.group_state == "Stable"
    assert [topic.topic_id for topic in group.members[0].assignment.topic_partitions] == [shown_id("bananas")]


def test_a_classic_group_is_no_consumer_group_even_while_a_cluster_is_silent(world: World) -> None:
    """Clients ask for the classic one then."""
    book = Playbook(
        describe_groups.handle_consumer_groups, ConsumerGroupDescribeRequest(group_ids=["g"]), 1, world.view()
    )
    look_up(book, {("c2", ApiKey.CONSUMER_GROUP_DESCRIBE): Unreachable("c2", "down")})
    look_up(book, c1=MEMBERS)
    [group] = book.answer.groups
    code = ErrorCode.GROUP_ID_NOT_FOUND
    assert (group.error_code, group.error_message) == (code, worded(code, f"g is no {CONSUMER.name} group"))

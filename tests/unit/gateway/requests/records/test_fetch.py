"""Fetch: who is asked for what, when the answer leaves, and what it hides."""

import pytest

from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.plan import Lane, Stale, Unreachable
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import FetchRequest, MetadataResponse
from tests.unit.gateway.requests.playbook import World
from tests.unit.gateway.requests.records.fetching import (
    TWO,
    answer,
    asked,
    data,
    play,
    positions,
    raw,
    request,
    seen,
    with_brokers,
)


def test_one_leader_is_asked_without_epochs_and_its_answer_passes() -> None:
    wanted = request("apples", rack="rack")
    wanted.topics[0].partitions[0].current_leader_epoch = wanted.topics[0].partitions[0].last_fetched_epoch = 5
    book = play(World({"c1": ["apples"]}), wanted)
    (call,) = book.gathers().calls
    message = asked(call)
    assert (call.lane, call.raw, message.session_id, message.session_epoch) == (Lane.FETCH, True, 0, -1)
    assert message.rack_id == "rack"
    (partition,) = message.topics[0].partitions
    assert (partition.current_leader_epoch, partition.last_fetched_epoch, partition.fetch_offset) == (-1, -1, 42)
    assert (message.max_wait_ms, message.min_bytes, message.max_bytes) == (500, 1, 1000)
    told = raw(data("apples", b"records"))
    book.answered(told)
    assert book.answer is told


# --- when ------------------------------------------------------------------------------------------------------------


def test_the_busy_cluster_is_not_delayed_by_the_idle_one() -> None:
    book = play(World(TWO), request("apples", "bananas"))
    gather = book.gathers()
    assert (round(gather.wait_s, 3), gather.since) == (0.55, 1000.0)
    assert not gather.enough([None, None])
    assert not gather.enough([raw(data("apples")), None])
    assert gather.enough([raw(data("apples", b"records")), None])
    book.answered(raw(data("apples", b"records")), None)
    assert seen(book) == [("apples", 0, b"records"), ("bananas", 0, b"")]


def test_the_minimum_counts_over_all_clusters() -> None:
    enough = play(World(TWO), request("apples", "bananas", min_bytes=10)).gathers().enough
    assert not enough([raw(data("apples", b"12345")), None])
    assert enough([raw(data("apples", b"1234567890")), None])
    assert enough([raw(data("apples", b"12345")), raw(data("bananas"))])


def test_without_a_minimum_every_broker_says_what_it_has() -> None:
    gather = play(World(TWO), request("apples", "bananas", min_bytes=0)).gathers()
    assert [asked(call).min_bytes for call in gather.calls] == [0, 0]
    assert not gather.enough([None, None])
    assert gather.enough([raw(data("apples")), raw(data("bananas"))])


def test_an_error_of_a_broker_leaves_at_once() -> None:
    book = play(World(TWO), request("apples", "bananas"))
    out_of_range = raw(data("apples", error=1))
    assert book.gathers().enough([out_of_range, None])
    book.answered(out_of_range, None)
    assert seen(book) == [("apples", 1, b""), ("bananas", 0, b"")]


def test_answers_of_two_clusters_are_one() -> None:
    book = play(World(TWO), request("bananas", "apples"))
    assert [asked(call).max_bytes for call in book.gathers().calls] == [500, 500]
    book.answered(raw(data("bananas", b"b")), raw(data("apples", b"a")))
    assert seen(book) == [("bananas", 0, b"b"), ("apples", 0, b"a")]


def test_a_leader_that_moved_is_doubted_and_its_hint_is_hidden() -> None:
    book = play(World({"c1": ["apples"]}), request("apples"))
    book.answered(raw(data("apples", error=6, leader=3)))
    assert book.noted == [Stale("c1", ("apples",))]
    assert seen(book) == [("apples", 6, b"")]


def test_unrouted_topics_and_dead_clusters_wait_with_the_rest() -> None:
    book = play(World({"c1": ["apples"]}), request("apples", "nowhere"))
    assert len(book.gathers().calls) == 1
    book.answered(raw(data("apples", b"a")))
    assert seen(book) == [("apples", 0, b"a"), ("nowhere", 3, b"")]
    dead = play(World({"c1": ["apples"]}), request("apples"))
    dead.answered(Unreachable("c1", "down"))
    assert (dead.gathers().calls, dead.gathers().wait_s, dead.gathers().since) == ((), 0.5, 1000.0)
    dead.answered()
    assert seen(dead) == [("apples", 6, b"")]
    nowhere = play(World({"c1": []}), request("nowhere"))
    assert (nowhere.gathers().calls, nowhere.gathers().wait_s) == ((), 0.5)
    nowhere.answered()
    assert seen(nowhere) == [("nowhere", 3, b"")]


def test_a_leader_that_has_just_left_its_cluster_fails_its_partitions_alone() -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    world.clusters["c1"].brokers.clear()
    book = play(world, request("apples", "bananas"))
    book.answered(Unreachable("c1", "broker 1 is not known", never_sent=True), raw(data("bananas", b"b")))
    assert seen(book) == [("apples", 6, b""), ("bananas", 0, b"b")]


# --- how much --------------------------------------------------------------------------------------------------------


def test_an_answer_has_no_more_than_the_client_takes_whatever_each_broker_gives() -> None:
    """Each broker gives at least one batch, however small its share is."""
    world = World(TWO)
    book = play(world, request("apples", "bananas", max_bytes=100))
    book.answered(raw(data("apples", b"a" * 80)), raw(data("bananas", b"b" * 90)))
    assert seen(book) == [("apples", 0, b"a" * 80), ("bananas", 0, b"")]
    again = play(world, request("bananas", "apples", max_bytes=100))
    assert positions(again.gathers().calls[0]) == {"bananas": 42}, "what was left out is read again"


def test_a_plan_which_gathers_what_it_asks_for_asks_for_no_more_than_there_is_room_for() -> None:
    """Brokers, too, may give less at once than a client takes, and then wait for no more."""
    one, two = World({"c1": ["apples"]}, poll_bytes=600), World(TWO, poll_bytes=600)
    (call,) = play(one, request("apples", min_bytes=900, max_bytes=1000)).gathers().calls
    assert (asked(call).min_bytes, asked(call).max_bytes) == (600, 600)
    gather = play(two, request("apples", "bananas", min_bytes=900, max_bytes=1000)).gathers()
    assert [asked(call).max_bytes for call in gather.calls] == [300, 300]
    assert gather.enough([raw(data("apples", bytes(600))), None])


def test_one_batch_is_given_even_if_it_alone_is_too_much() -> None:
    book = play(World(TWO), request("apples", "bananas", max_bytes=10))
    book.answered(raw(data("apples", b"a" * 80)), raw(data("bananas", b"b" * 2)))
    assert seen(book) == [("apples", 0, b"a" * 80), ("bananas", 0, b"")]


def test_in_a_session_what_was_left_out_comes_first_the_next_time() -> None:
    world = World(TWO)
    full = play(world, request("apples", "bananas", epoch=0, max_bytes=100))
    full.answered(raw(data("apples", b"a" * 80)), raw(data("bananas", b"b" * 80)))
    session = answer(full).session_id
    next_one = play(world, request(("apples", 43), session=session, epoch=1, max_bytes=100))
    next_one.answered(raw(data("bananas", b"b" * 80)), raw(data("apples", b"c" * 80)))
    assert seen(next_one) == [("bananas", 0, b"b" * 80)]


# --- what was left behind ---------------------------------------------------------------------------------------------


def left_behind(world: World, message: FetchRequest) -> object:
    """A poll is answered by apples alone: what bananas has to say is left behind. Its key."""
    book = play(world, message)
    apples, bananas = book.gathers().calls
    assert (apples.cluster, bananas.cluster) == ("c1", "c2")
    book.answered(raw(data("apples", b"first")), None)
    assert seen(book) == [("apples", 0, b"first"), ("bananas", 0, b"")]
    return bananas.resume_key


def test_a_late_answer_serves_the_next_fetch_at_once() -> None:
    world = World(TWO)
    key = left_behind(world, request("apples", "bananas"))
    book = play(world, request("bananas", ("apples", 43)))  # librdkafka turns its list of partitions each time
    bananas, apples = book.gathers().calls
    assert (bananas.resume_key, positions(apples)) == (key, {"apples": 43})
    late = raw(data("bananas", b"late"))
    assert book.gathers().enough([late, None])
    book.answered(late, None)
    assert seen(book) == [("bananas", 0, b"late"), ("apples", 0, b"")]


def test_a_late_answer_about_another_position_is_of_no_use_and_the_broker_is_asked_again() -> None:
    world = World(TWO)
    left_behind(world, request("apples", "bananas"))
    book = play(world, request("apples", ("bananas", 7)))
    apples, _ = book.gathers().calls
    book.answered(None, raw(data("bananas", b"not these")))
    again, bananas = book.gathers().calls
    assert (again.resume_key, positions(bananas)) == (apples.resume_key, {"bananas": 7})
    book.answered(None, raw(data("bananas", b"these")))
    assert seen(book) == [("apples", 0, b""), ("bananas", 0, b"these")]


def test_after_a_late_answer_with_nothing_the_broker_is_asked_again_and_nobody_else() -> None:
    world = World(TWO)
    left_behind(world, request("apples", "bananas"))
    book = play(world, request("apples", "bananas"))
    (apples, bananas) = book.gathers().calls
    book.answered(None, raw(data("bananas")))
    first, second = book.gathers().calls
    assert (first.resume_key, second.resume_key) == (apples.resume_key, (bananas.resume_key[0], 2))  # type: ignore[index]
    assert book.gathers().since == 1000.0
    book.answered(raw(data("apples", b"a")), None)
    assert seen(book) == [("apples", 0, b"a"), ("bananas", 0, b"")]


def test_a_connection_that_broke_meanwhile_is_not_the_clients_business() -> None:
    world = World(TWO)
    left_behind(world, request("apples", "bananas"))
    book = play(world, request("apples", "bananas"))
    book.answered(None, Unreachable("c2", "connection lost"))
    _, bananas = book.gathers().calls
    assert positions(bananas) == {"bananas": 42}
    book.answered(None, raw(data("bananas", b"b")))
    assert seen(book) == [("apples", 0, b""), ("bananas", 0, b"b")]


def test_records_of_other_terms_are_not_taken() -> None:
    """What was read uncommitted is none for a client that reads committed records."""
    world = World(TWO)
    key = left_behind(world, request("apples", "bananas"))
    message = request("apples", "bananas")
    message.isolation_level = 1
    _, bananas = play(world, message).gathers().calls
    assert bananas.resume_key != key
    assert asked(bananas).isolation_level == 1


def test_a_topic_that_moves_is_asked_of_its_new_cluster() -> None:
    world = World({"c1": ["apples", "avocados"], "c2": ["bananas"]})
    left_behind(world, request("apples", "bananas"))
    world.move("bananas", "c1")
    (call,) = play(world, request("apples", "bananas")).gathers().calls
    assert (call.cluster, positions(call)) == ("c1", {"apples": 42, "bananas": 42})


def test_a_late_answer_outlasts_a_pause() -> None:
    """librdkafka leaves partitions out while enough of them is queued."""
    world = World(TWO)
    key = left_behind(world, request("apples", "bananas"))
    play(world, request("apples")).answered(raw(data("apples", b"second")))
    _, bananas = play(world, request("apples", "bananas")).gathers().calls
    assert bananas.resume_key == key


def test_what_a_cluster_said_before_a_topic_went_and_came_back_is_of_no_use() -> None:
    world = World(TWO)
    key = left_behind(world, request("apples", "bananas"))
    world.move("bananas", "c1")
    play(world, request("apples", "bananas")).answered(raw(data("apples"), data("bananas", b"of c1")))
    world.move("bananas", "c2")
    book = play(world, request("apples", "bananas"))
    _, bananas = book.gathers().calls
    assert (bananas.cluster, positions(bananas)) == ("c2", {"bananas": 42})
    assert bananas.resume_key != key


# --- ids and versions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [13, 18])
def test_ids_go_up_as_names_and_come_back_as_ids(version: int) -> None:
    book = play(World(TWO), request("apples", "bananas", ids=True), version)
    calls = book.gathers().calls
    assert [(call.version, positions(call)) for call in calls] == [(12, {"apples": 42}), (12, {"bananas": 42})]
    book.answered(raw(data("apples", b"a", leader=3)), raw(data("bananas", error=1)))
    assert seen(book, version) == [("apples", 0, b"a"), ("bananas", 1, b"")]


def test_an_unknown_id_is_told_with_the_rest() -> None:
    message = request("apples", ids=True)
    message.topics.insert(0, request("cherries", ids=True).topics[0])
    book = play(World({"c1": ["apples"]}), message, 13)
    assert [call.key for call in book.asked()] == [ApiKey.METADATA]
    book.answered(MetadataResponse())
    assert [positions(call) for call in book.gathers().calls] == [{"apples": 42}]
    book.answered(raw(data("apples", b"a")))
    assert seen(book, 13) == [("cherries", 100, b""), ("apples", 0, b"a")]


@pytest.mark.parametrize(("client", "cluster"), [(18, 11), (13, 4), (12, 10), (11, 5), (9, 4), (7, 6), (5, 4), (4, 4)])
def test_an_older_cluster_is_spoken_to_in_its_version_and_a_newer_client_answered_in_its_own(
    client: int, cluster: int
) -> None:
    world = World(TWO)
    world.clusters["c1"].versions[ApiKey.FETCH] = VersionRange(0, cluster)
    book = play(world, request("apples", "bananas", ids=client >= 13), client)
    old, new = book.gathers().calls
    assert (old.version, new.version) == (cluster, min(client, 12))
    book.answered(raw(data("apples", b"a"), version=old.version), raw(data("bananas", b"b"), version=new.version))
    assert seen(book, client) == [("apples", 0, b"a"), ("bananas", 0, b"b")]
    parts = [part for topic in answer(book, client).responses for part in topic.partitions]
    assert [(part.high_watermark, part.last_stable_offset) for part in parts] == [(50, 50), (50, 50)]


# --- replicas ---------------------------------------------------------------------------------------------------------


def near(world: World) -> None:
    """The leader has named broker 7 as nearer, and that has been asked."""
    book = play(world, request("apples", rack="r"))
    told = raw(data("apples", replica=7))
    assert book.gathers().enough([told])
    book.answered(told)
    (call,) = book.gathers().calls
    assert (call.target.broker_id, positions(call)) == (7, {"apples": 42})  # type: ignore[union-attr]
    book.answered(raw(data("apples", b"near")))
    assert seen(book) == [("apples", 0, b"near")]


@pytest.fixture
def racks() -> World:
    world = World({"c1": ["apples"]})
    with_brokers(world, "c1", 7)
    return world


def brokers(world: World) -> list[int]:
    """Whom the next poll asks."""
    calls = play(world, request("apples", rack="r")).gathers().calls
    return [call.target.broker_id for call in calls]  # type: ignore[union-attr]


def test_a_replica_that_is_nearer_is_read_from_for_a_while(racks: World) -> None:
    near(racks)
    assert brokers(racks) == [7]
    racks.now += 301
    assert brokers(racks) == [1]


def test_an_error_of_a_follower_is_not_shown_its_leader_is_asked(racks: World) -> None:
    near(racks)
    book = play(racks, request("apples", rack="r"))
    book.answered(raw(data("apples", error=1)))
    (call,) = book.gathers().calls
    assert call.target.broker_id == 1  # type: ignore[union-attr]
    book.answered(raw(data("apples", b"of the leader")))
    assert seen(book) == [("apples", 0, b"of the leader")]


def test_a_follower_that_is_gone_is_not_missed(racks: World) -> None:
    near(racks)
    book = play(racks, request("apples", rack="r"))
    book.answered(Unreachable("c1", "connection refused"))
    (call,) = book.gathers().calls
    assert call.target.broker_id == 1  # type: ignore[union-attr]
    book.answered(raw(data("apples", b"of the leader")))
    assert seen(book) == [("apples", 0, b"of the leader")]
    near(racks)
    del racks.clusters["c1"].brokers[7]
    assert brokers(racks) == [1]


def test_brokers_that_contradict_each_other_do_not_keep_the_client_busy(racks: World) -> None:
    book = play(racks, request("apples", rack="r"))
    for _ in range(2):
        book.answered(raw(data("apples", replica=7)))
        book.answered(Unreachable("c1", "refused"))
    book.answered(raw(data("apples", replica=7)))
    assert book.gathers().calls == ()
    book.answered()
    assert seen(book) == [("apples", 6, b"")]

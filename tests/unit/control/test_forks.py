"""Forks of topics, and share groups of stitched ones, as control decides about them."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.routing import RoutingTable, Stay
from mesh.routing.policies import Policies
from mesh.rpc import stitches, topics
from mesh.stitches.codec import log_from_proto
from mesh.stitches.log import MOST_PARTS
from services.control.domain.errors import Exists, InvalidField, NotAllowed, Unknown
from services.control.domain.log_ranges import LogRange
from services.control.domain.stitches import forks, logs
from services.control.domain.stitches.share_offsets import over_parts
from tests.unit.control.test_stitched_logs import NEW, NOW, OLD, log, stitched
from tests.unit.control.worlds import table

OWN = Stay("c2", 1, "staging")


def wanted(**fields: Any) -> topics.ForkTopicRequest:
    at = {} if {"offset", "time", "latest"} & fields.keys() else {"latest": True}
    return topics.ForkTopicRequest(
        **{"source_topic": "apples", "topic": "staging", "target_cluster": "c2", **at, **fields}
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"topic": "apples"}, "needs another name"),
        ({"topic": "__staging"}, "is no name of a topic of clients"),
        ({"target_cluster": "c9"}, "is not registered"),
        ({"latest": False}, "is required"),
        ({"offset": -1}, "is less than 0"),
        ({"past_bytes_per_second": -1}, "is less than 0"),
        ({"source_topic": "pears"}, "no rule leads topic"),
    ],
)
def test_a_fork_that_makes_no_sense_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidField, match=says):
        forks.check_wanted(table("apples->c1", "bananas->c2"), wanted(**fields))
    forks.check_wanted(table("apples->c1", "bananas->c2"), wanted(time=Timestamp(seconds=1)))


def forked_at(of: RoutingTable, *offsets: int) -> stitches.StitchedLog:
    past = forks.past_of(of, "apples", 2)
    return forks.forked(of, wanted(), past, dict(enumerate(offsets)), OWN, NOW)


def test_a_fork_of_a_plain_topic_has_its_whole_log_as_past() -> None:
    made = forked_at(stitched(None), 5, 3)
    assert [part.is_past for part in made.parts] == [True, False]
    assert [(each.start, each.shift) for each in made.parts[1].partitions] == [(5, 5), (3, 3)]
    assert made.parts[1].begin_time.ToDatetime(UTC) == NOW
    assert forks.fork_of(made).past_clusters == ["c1"]


def test_a_fork_in_the_old_part_of_a_stitched_log_has_no_later_part() -> None:
    made = forked_at(stitched(log(OLD, NEW), "c2"), 60, 2)
    assert [(part.cluster_name, part.is_past) for part in made.parts] == [("c1", True), ("c2", False)]


def test_a_fork_behind_a_cut_has_both_parts_as_past() -> None:
    made = forked_at(stitched(log(OLD, NEW), "c2"), 60, 9)
    assert [(part.cluster_name, part.is_past) for part in made.parts] == [("c1", True), ("c2", True), ("c2", False)]
    assert [each.start for each in made.parts[1].partitions] == [60, 7], "of partition 0 the new part has nothing"
    assert log_from_proto(made).fork_of == "apples"


def test_a_fork_has_no_more_parts_than_a_log() -> None:
    past = [stitches.LogPart(partitions=[stitches.LogPartPartition()], is_past=True)] * MOST_PARTS
    with pytest.raises(NotAllowed, match="wait until the oldest has expired"):
        forks.forked(stitched(None), wanted(), past, {0: 5}, OWN, NOW)


def test_an_offset_that_is_gone_is_refused() -> None:
    with pytest.raises(NotAllowed, match="offset 4 of partition 1"):
        forks.check_offsets("apples", 4, {0: LogRange(0, 9), 1: LogRange(5, 9)})
    forks.check_offsets("apples", 5, {0: LogRange(0, 9), 1: LogRange(5, 9)})


def test_a_name_that_is_a_fork_already_is_refused_and_a_topic_that_is_none_is_not_deleted() -> None:
    plain = table("apples->c1", "staging->c2")
    made = forked_at(plain, 5, 3)
    policy = stitches.StitchPolicy(logs=[made])
    known = RoutingTable(1, plain.clusters.values(), plain.versions, policies=Policies(stitch_policy=policy))
    with pytest.raises(Exists, match="is a fork, or stitched, already"):
        forks.check_wanted(known, wanted())
    assert forks.own_topics(forks.fork_to_delete(known, "staging")) == {"c2": ["staging"]}
    with pytest.raises(Unknown, match="is no fork"):
        forks.fork_to_delete(known, "apples")
    assert [each.topic for each in forks.forks_of(known, "apples")] == ["staging"]
    assert not forks.forks_of(known, "pears")


def test_parts_get_the_ids_of_their_topics_and_keep_them() -> None:
    made = log(OLD, NEW)
    made.parts[0].topic_id = b"first"
    assert logs.unidentified(made) == {"c2": {"apples"}}
    logs.identify(made, {"c1": {"apples": b"other"}, "c2": {"apples": b"second"}})
    old, new = log_from_proto(made).parts
    assert (old.topic_id, new.topic_id) == (b"first", b"second")
    assert [logs.is_other(old, each) for each in (b"first", b"other", None, b"")] == [False, True, True, False]
    assert not logs.is_other(log_from_proto(log(OLD)).parts[0], b"any"), "a part of an earlier release has no id"


@pytest.mark.parametrize(
    ("offsets", "shown"),
    [
        pytest.param({"c1": (90, 7), "c2": (20, 2)}, [110, 9], id="both parts"),
        pytest.param({"c1": (100, 7), "c2": (20, 2)}, [120, 9], id="the old part is settled"),
        pytest.param({"c1": (90, 5)}, [90, 5], id="the present part is not begun"),
        pytest.param({"c2": (20, 2)}, [120, 9], id="the old cluster has no state, or is away"),
    ],
)
def test_the_offset_of_a_share_group_is_the_end_without_what_is_unsettled_in_any_part(
    offsets: dict[str, tuple[int, int]], shown: list[int]
) -> None:
    told = {
        cluster: {"packing": {("apples", number): offset for number, offset in enumerate(there)}}
        for cluster, there in offsets.items()
    }
    found = over_parts(stitched(log(OLD, NEW), "c2"), {"packing", "idle"}, told)
    assert found == {"apples": {"packing": dict(enumerate(shown))}}
    assert over_parts(stitched(log(OLD, NEW), "c2"), (), told) == {}

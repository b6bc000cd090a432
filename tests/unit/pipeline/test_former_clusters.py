"""Where an archive finds what topics left at their former clusters, and what it says if it does not find it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

pytest.importorskip("pyarrow", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")

from services.pipeline.archives.former_clusters import FormerClusters, FormerPlace
from services.pipeline.archives.left_behind import LeftBehind, left_behind
from services.pipeline.kafka.clusters import Cluster, ClustersError
from services.pipeline.kafka.positions import PartitionLog, RecordsLostError, Stay, TopicLog, UnreachableError, advance
from services.pipeline.kafka.source import GATEWAY, KafkaSource

C1 = Cluster("c1", {"bootstrap.servers": "kafka-1:9092"}, node="101")
C2 = Cluster("c2", {"bootstrap.servers": "kafka-2:9092", "sasl.password": "${env:NOWHERE_SET}"}, node="102")
STAY = Stay({0: 10}, {}, 0)
NAME = "101/apples"
SOURCE = KafkaSource(
    topics=("apples",),
    clusters={GATEWAY: {"bootstrap.servers": "mesh:19092"}},
    max_batch_rows=10,
    stall_timeout_s=1.0,
    request_timeout_s=1.0,
)


def clusters(*known: Cluster) -> FormerClusters:
    """A mesh of these clusters, in which the topic has always had its own name at c1."""
    return FormerClusters(lambda: {each.name: each for each in known}, lambda topic: ["c2", "c1"])


def away() -> Mapping[str, Cluster]:
    raise ClustersError("control does not answer")


@pytest.mark.parametrize(
    ("places", "found"),
    [
        (["c2", "c1", "c1/older"], "c1/apples"),
        (["c2", "c1/old.apples"], "c1/old.apples"),
        (["c2", "c2 for principal User:ada, c1/old.apples for others", "c1"], "c1/old.apples"),
    ],
)
def test_the_topic_has_the_name_there_that_it_had_last(places: list[str], found: str) -> None:
    former = FormerClusters(lambda: {"c1": C1, "c2": C2}, lambda topic: places)
    assert former.places_of({NAME: STAY}) == {NAME: FormerPlace(found, C1.properties)}


def test_a_place_that_the_checkpoint_knows_is_not_asked_for() -> None:
    former = FormerClusters(lambda: {"c1": C1}, lambda topic: pytest.fail("asked"))
    stay = Stay({0: 10}, {}, 0, place="c1/old.apples")
    assert former.places_of({NAME: stay}) == {NAME: FormerPlace("c1/old.apples", C1.properties)}


@pytest.mark.parametrize(
    ("former", "kind", "why"),
    [
        (FormerClusters(away, lambda topic: []), UnreachableError, "left records can't be read now: control does not"),
        (clusters(Cluster("c1", {})), UnreachableError, "the cluster of node 101 is not known now"),
        (
            FormerClusters(lambda: {"c1": C1}, lambda topic: ["c2"]),
            RecordsLostError,
            "does not show topic apples at c1",
        ),
        (
            FormerClusters(lambda: {"c1": C1}, lambda topic: ["c1/a for principal User:ada, c1/b for others"]),
            RecordsLostError,
            "topic apples had several names at c1, by client: a, b",
        ),
    ],
)
def test_a_place_that_can_not_be_found_is_a_problem_of_its_topic(
    former: FormerClusters, kind: type[Exception], why: str
) -> None:
    position = advance({}, {"apples": TopicLog("mesh", {0: PartitionLog(0, 10)}, at="101")})
    position = advance(position, {"apples": TopicLog("mesh", {0: PartitionLog(0, 5)}, at="102")}, accept_replaced=True)
    left = left_behind(SOURCE, position, former)
    [(topic, problem)] = left.problems().items()
    assert (topic, type(problem).__mro__[1] if kind is RecordsLostError else type(problem)) == ("apples", kind)
    assert why in str(problem)
    accepted = {"101/apples": ""} if kind is RecordsLostError else {}
    assert left.added_to(SOURCE, ["apples"]).former == accepted, "only a loss can be accepted"
    assert left.added_to(SOURCE, []).former == {}


def test_what_is_at_a_cluster_that_was_removed_is_lost() -> None:
    left = LeftBehind({NAME: STAY}, clusters(C2).places_of({NAME: STAY}), {NAME: None})
    [problem] = left.problems().values()
    assert isinstance(problem, RecordsLostError)
    assert "was at a cluster that was removed before it was read to its end there" in str(problem)
    assert left.given_up("apples") == [
        "goes on without what was left at a cluster that was removed: offsets 10 and later of partition 0"
    ]
    assert left.added_to(SOURCE, []).former == {NAME: ""}


def test_a_secret_that_is_missing_delays_only_its_own_cluster() -> None:
    former = FormerClusters(lambda: {"c1": C1, "c2": C2}, lambda topic: ["c2", "c1"])
    found = former.places_of({NAME: STAY, "102/apples": STAY})
    assert isinstance(found[NAME], FormerPlace)
    assert "NOWHERE_SET" in str(found["102/apples"])


def test_nobody_is_asked_while_no_topic_has_moved() -> None:
    position = advance({}, {"apples": TopicLog("mesh", {0: PartitionLog(0, 10)}, at="101")})
    assert left_behind(SOURCE, position, FormerClusters(away, lambda topic: pytest.fail("asked"))) == LeftBehind()

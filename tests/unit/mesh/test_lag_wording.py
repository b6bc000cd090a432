"""How the lag of a group is said: ages, the outlook, sums over partitions, and what is left out."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.lag_wording import behind, length, outlook, sampling, totals
from mesh.rpc import topics


def point(records: int, seconds: float, *, at_least: bool = False, time: int = 0) -> topics.LagPoint:
    return topics.LagPoint(time=Timestamp(seconds=time), records=records, seconds=seconds, at_least=at_least)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59.4, "59 s"), (90, "1.5 min"), (7_200, "2 h"), (2 * 86_400, "2 d")]
)
def test_lengths_have_one_unit(seconds: float, said: str) -> None:
    assert length(seconds) == said


def test_an_age_says_that_it_is_a_bound() -> None:
    assert behind(point(5, 120)) == "2 min"
    assert behind(point(5, 120, at_least=True)) == "> 2 min"
    assert behind(point(0, 0)) == "-"


def test_the_outlook_of_a_group() -> None:
    late = topics.PartitionLag(last=point(600, 10), written_per_second=5, passed_per_second=2)
    assert outlook(late) == "falls behind by 3 records/s"
    late.passed_per_second = 5
    assert outlook(late) == "stays"
    late.catch_up.CopyFrom(Duration(seconds=90))
    assert outlook(late) == "caught up in 1.5 min"
    assert outlook(topics.PartitionLag(last=point(0, 0))) == "-"


def test_all_partitions_together_have_the_highest_age() -> None:
    found = totals(
        [
            topics.PartitionLag(points=[point(5, 10, time=60), point(7, 20, time=120)]),
            topics.PartitionLag(points=[point(1, 90, time=120)]),
        ]
    )
    assert [(each.time_s, each.records, each.oldest and each.oldest.seconds) for each in found] == [
        (60, 5, 10),
        (120, 8, 90),
    ]


def test_what_is_not_sampled_is_said() -> None:
    assert sampling(topics.LagSampling(groups=3)) == []
    said = sampling(topics.LagSampling(problem="cluster 'c1' is silent", left_out_groups=2, left_out_partitions=40))
    assert said[0] == "cluster 'c1' is silent"
    assert said[1].startswith("control leaves out 2 groups with 40 partitions")

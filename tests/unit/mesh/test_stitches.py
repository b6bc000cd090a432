"""A log that is on two clusters: the parts that count where the topic stays, and the same through protobuf."""

from mesh.stitches import LogPart, Policy, StitchedLog
from mesh.stitches.codec import log_from_proto, log_to_proto

OLD = LogPart("c1", "apples", 1, starts=(0, 0), shifts=(0, 0))
NEW = LogPart("c2", "apples", 1, starts=(100, 7), shifts=(100, 7))
BACK = LogPart("c1", "apples", 2, starts=(130, 9), shifts=(30, 2))
LOG = StitchedLog("apples", (OLD, NEW, BACK))


def test_the_parts_count_up_to_the_one_where_the_topic_stays() -> None:
    policy = Policy([LOG])
    assert policy.parts("apples", ("c1", 1, "apples")) == (OLD,), "the cut has named the next part, and is not over"
    assert policy.parts("apples", ("c2", 1, "apples")) == (OLD, NEW)
    assert policy.parts("apples", ("c1", 2, "apples")) == (OLD, NEW, BACK)


def test_where_the_log_has_no_part_it_is_not_stitched() -> None:
    assert Policy([LOG]).parts("apples", ("c3", 1, "apples")) == ()
    assert Policy([LOG]).parts("pears", ("c1", 1, "pears")) == ()


def test_a_log_is_the_same_through_protobuf() -> None:
    assert log_from_proto(log_to_proto(LOG)) == LOG

"""Where a content rule sends its records."""

from __future__ import annotations

import pytest

from mesh.judging.values import read_json
from mesh.record_expressions import InvalidExpressionError
from mesh.record_transforms import InvalidTransformError
from mesh.rpc import record_rules
from mesh.rpc.v1.record_rules_pb2 import ContentBranch, ContentRuleSpec, HeaderValue, RecordTarget, Transform
from services.router.forwarding.distribution import Distribution
from services.router.forwarding.records import BY_KEY, Fate, NotNowError, Write
from tests.unit.router.forwarding.records import Sample, sample

GERMANY = ContentBranch(when="value.country == 'DE'", target=RecordTarget(topic="orders-de"))
LARGE = ContentBranch(when="value.amount > 1000", target=RecordTarget(cluster="c2", topic="orders-large"))
OTHERS = RecordTarget(cluster="c2", topic="orders-other")


def plan(
    *branches: ContentBranch,
    otherwise: RecordTarget | None = None,
    dead_letters: RecordTarget | None = None,
    transforms: list[Transform] | None = None,
) -> Distribution:
    spec = ContentRuleSpec(
        source_cluster="c1",
        topic="orders",
        branches=branches or (GERMANY, LARGE),
        otherwise=otherwise,
        dead_letters=dead_letters,
        transforms=transforms or (),
    )
    return Distribution("by-country", spec, read_json)


def only(plan: Distribution, record: Sample) -> Write:
    """The one write of a record."""
    [write] = plan(record)
    return write


def place(write: Write) -> str:
    return f"{write.cluster}/{write.topic}"


def reason(write: Write) -> str:
    assert write.fate is Fate.DEAD
    return (dict(write.headers)["mesh-dlq-reason"] or b"").decode()


@pytest.mark.parametrize(
    ("record", "where"),
    [
        (sample({"country": "DE", "amount": 1}), "c1/orders-de"),
        (sample({"country": "DE", "amount": 5000}), "c1/orders-de"),  # the first branch that takes it
        (sample({"country": "FR", "amount": 5000}), "c2/orders-large"),
        (sample({"country": "FR", "amount": 5}), "c2/orders-other"),
        (sample({"amount": 5000}), "c2/orders-large"),
        (sample(None), "c2/orders-other"),  # a tombstone has no fields
    ],
)
def test_the_first_branch_that_takes_a_record_has_it(record: Sample, where: str) -> None:
    write = only(plan(otherwise=OTHERS), record)
    assert place(write) == where
    assert write.fate is Fate.WRITTEN


def test_a_record_stays_what_it_is_and_its_partition_follows_from_its_key() -> None:
    record = Sample(b"k", b'{"country":"DE"}', [("a", b"1")], 123)
    assert only(plan(), record) == Write("c1", "orders-de", BY_KEY, b"k", b'{"country":"DE"}', [("a", b"1")], 123)


def test_what_no_branch_takes_is_a_dead_letter_without_a_default() -> None:
    write = only(plan(), sample({"country": "FR", "amount": 5}))
    assert place(write) == "c1/orders.dlq"
    assert reason(write) == "no branch takes it"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (sample(raw=b"no JSON"), "branch 1 can't be judged: the value is not JSON"),
        (sample({"country": "FR", "amount": "5000"}), "branch 2 can't be judged: types that do not go together"),
    ],
)
def test_what_can_not_be_judged_is_a_dead_letter(record: Sample, why: str) -> None:
    assert why in reason(only(plan(otherwise=OTHERS), record))


def test_an_earlier_branch_that_can_not_be_judged_hides_later_ones() -> None:
    by_header = ContentBranch(when="headers.kind == 'a'", target=RecordTarget(topic="a"))
    unreadable = sample(raw=b"no JSON", kind="a")
    assert only(plan(GERMANY, by_header), unreadable).fate is Fate.DEAD
    assert place(only(plan(by_header, GERMANY), unreadable)) == "c1/a"


def test_a_dead_letter_keeps_all_and_says_where_it_comes_from() -> None:
    record = Sample(b"\xff", b"?", [("a", None), ("mesh-dlq-reason", b"an older one")], 123)
    write = only(plan(dead_letters=RecordTarget(cluster="c2", topic="dead")), record)
    assert place(write) == "c2/dead"
    assert (write.partition, write.key, write.value, write.timestamp) == (BY_KEY, b"\xff", b"?", 123)
    said = dict(write.headers)
    assert (said.pop("mesh-dlq-reason") or b"").startswith(b"branch 1 can't be judged: the value is not JSON")
    assert said == {
        "a": None,
        "mesh-dlq-rule": b"by-country",
        "mesh-dlq-cluster": b"c1",
        "mesh-dlq-topic": b"orders",
        "mesh-dlq-partition": b"3",
        "mesh-dlq-offset": b"42",
    }
    assert len(write.headers) == 7, "the older reason is gone"


def test_changes_come_behind_the_decision_and_spare_dead_letters() -> None:
    changing = plan(
        otherwise=OTHERS,
        transforms=[
            Transform(redact_json_field="country"),
            Transform(set_header=HeaderValue(name="by", value="mesh")),
        ],
    )
    write = only(changing, sample({"country": "DE"}))
    assert (place(write), write.value, write.headers) == ("c1/orders-de", b'{"country": "***"}', [("by", b"mesh")])
    assert only(changing, sample({"country": "DE", "amount": "x"})).value == b'{"country": "***", "amount": "x"}'
    dead = only(changing, sample({"amount": "x", "country": "FR"}))
    assert (dead.value, dict(dead.headers).get("by")) == (b'{"amount": "x", "country": "FR"}', None)


def test_what_can_not_be_changed_is_a_dead_letter() -> None:
    branch = ContentBranch(when="headers.kind == 'a'", target=RecordTarget(topic="a"))
    redacting = plan(branch, transforms=[Transform(redact_json_field="card")])
    assert "card can't be redacted: the value is not JSON" in reason(only(redacting, sample(raw=b"card", kind="a")))


def test_the_same_record_is_always_planned_alike() -> None:
    distribution = plan()
    record = sample({"country": "DE"})
    assert distribution(record) == distribution(record)


def test_what_does_not_answer_is_no_dead_letter() -> None:
    def silent(value: bytes) -> object:
        raise NotNowError("the registry is down")

    rule = ContentRuleSpec(source_cluster="c1", topic="orders", branches=[GERMANY])
    with pytest.raises(NotNowError):
        Distribution("by-country", rule, silent)(sample({}))


def test_what_can_not_be_compiled_is_refused_at_the_start() -> None:
    with pytest.raises(InvalidExpressionError):
        plan(ContentBranch(when="value.country ="))
    avro = ContentRuleSpec(
        branches=[GERMANY],
        value_format=record_rules.VALUE_FORMAT_AVRO,
        transforms=[Transform(redact_json_field="a")],
    )
    with pytest.raises(InvalidTransformError):
        Distribution("by-country", avro, read_json)

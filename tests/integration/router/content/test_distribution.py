"""Records of a topic go to topics of two clusters by what is in them."""

from __future__ import annotations

import json

from mesh.rpc import record_rules
from tests.fixtures.content_rules import Given, content_rule, reason, send, values
from tests.fixtures.record_rules import Side, Workers, ends


def test_headers_keys_and_json_decide_over_two_clusters(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    for side, name in ((c1, ""), (c1, ".de"), (c1, ".dlq"), (c2, ".refunds"), (c2, ".vip"), (c2, ".other")):
        side.create(f"{topic}{name}")
    records = [
        Given("a", b'{"country":"DE"}'),
        Given("vip-1", b'{"country":"DE"}'),
        Given("b", b'{"country":"DE"}', {"kind": "refund"}),
        Given("c", b'{"country":"FR"}', {"trace": "t-1"}),
        Given(None, b'{"land":"DE"}'),
        Given("d", None),
        Given("e", b"no JSON"),
        Given("vip-2", b"no JSON"),
    ]
    send(c1, topic, records)

    workers.run(
        content_rule(
            topic,
            [
                ("headers.kind == 'refund'", ("c2", f"{topic}.refunds")),
                ("key != null && key.startsWith('vip-')", ("c2", f"{topic}.vip")),
                ("value.country == 'DE'", ("c1", f"{topic}.de")),
            ],
            otherwise=("c2", f"{topic}.other"),
        )
    )
    workers.wait_until_caught_up("by-content", ends(c1, topic))

    assert values(c2.read(f"{topic}.refunds")) == [b'{"country":"DE"}']
    assert values(c2.read(f"{topic}.vip")) == [b'{"country":"DE"}', b"no JSON"]
    assert values(c1.read(f"{topic}.de")) == [b'{"country":"DE"}']
    other = c2.read(f"{topic}.other")
    assert values(other) == [b'{"country":"FR"}', b'{"land":"DE"}', None]
    source = c1.read(topic)
    assert [each.content[1:] for each in other] == [each.content[1:] for each in (source[3], source[4], source[5])]
    [dead] = c1.read(f"{topic}.dlq")
    assert (dead.key, dead.value) == (b"e", b"no JSON")
    said = workers.wait_for("by-content", "counts", lambda progress: progress.records_written == len(records))
    assert (said.records_dead, said.problem) == (1, "")


def test_a_dead_letter_says_why_and_where_it_was(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    c1.create(f"{topic}.large")
    c2.create(f"{topic}.dead")
    send(c1, topic, [Given("k", b'{"amount":"12"}', {"trace": "t-1"}), Given("k", b'{"amount":1}')])

    rule = content_rule(topic, [("value.amount > 10", ("c1", f"{topic}.large"))], dead_letters=("c2", f"{topic}.dead"))
    workers.run(rule)
    workers.wait_until_caught_up("by-content", ends(c1, topic))

    wrong_type, unmatched = c2.read(f"{topic}.dead")
    [source, _] = c1.read(topic)
    assert (wrong_type.key, wrong_type.value, wrong_type.timestamp) == (b"k", b'{"amount":"12"}', source.timestamp)
    headers = dict(wrong_type.headers)
    assert headers.pop("mesh-origin")
    assert headers == {
        "trace": b"t-1",
        "mesh-dlq-reason": b"branch 1 can't be judged: types that do not go together: _>_(string, int64)",
        "mesh-dlq-rule": b"by-content",
        "mesh-dlq-cluster": b"c1",
        "mesh-dlq-topic": topic.encode(),
        "mesh-dlq-partition": b"0",
        "mesh-dlq-offset": b"0",
    }
    assert reason(unmatched) == "no branch takes it"


JAVA_HASHES = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}
"""Keys and their murmur2, from the tests of Kafka's own client (org.apache.kafka.common.utils.UtilsTest)."""


def test_records_of_one_key_keep_their_order_in_the_partition_that_kafka_gives_the_key(
    c1: Side, c2: Side, workers: Workers, topic: str
) -> None:
    c1.create(topic, 3)
    c1.create(f"{topic}.dlq")
    even = c2.create(f"{topic}.even", 5)
    odd = c1.create(f"{topic}.odd", 2)
    keys = list(JAVA_HASHES)
    sent = [(keys[number // 2 % len(keys)], number) for number in range(2000)]
    send(c1, topic, [Given(key, json.dumps({"n": number}).encode()) for key, number in sent])

    workers.run(content_rule(topic, [("value.n % 2 == 0", ("c2", even))], otherwise=("c1", odd)))
    workers.wait_until_caught_up("by-content", ends(c1, topic))

    for copies, remainder, partitions in ((c2.read(even), 0, 5), (c1.read(odd), 1, 2)):
        numbers: dict[str, list[int]] = {key: [] for key in keys}
        for each in copies:
            key = (each.key or b"").decode()
            numbers[key].append(json.loads(each.value or b"")["n"])
            assert each.partition == (JAVA_HASHES[key] & 0x7FFFFFFF) % partitions
        assert numbers == {key: [n for of, n in sent if of == key and n % 2 == remainder] for key in keys}


def test_changes_are_made_behind_the_decision(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    c1.create(f"{topic}.dlq")
    c2.create(f"{topic}.large")
    send(c1, topic, [Given("k", b'{"amount": 12.50, "card": {"number": "4111"}}', {"secret": "s"})])

    rule = content_rule(
        topic,
        [("value.card.number == '4111' && headers.secret == 's'", ("c2", f"{topic}.large"))],
        transforms=[
            record_rules.Transform(redact_json_field="card.number"),
            record_rules.Transform(drop_header="secret"),
            record_rules.Transform(set_header=record_rules.HeaderValue(name="size", value="large")),
        ],
    )
    workers.run(rule)
    workers.wait_until_caught_up("by-content", ends(c1, topic))

    [large] = c2.read(f"{topic}.large")
    assert large.value == b'{"amount": 12.50, "card": {"number": "***"}}'
    assert [header for header in large.headers if header[0] != "mesh-origin"] == [("size", b"large")]


def test_a_target_that_is_not_there_holds_the_rule_and_loses_nothing(
    c1: Side, c2: Side, workers: Workers, topic: str
) -> None:
    c1.create(topic)
    c1.create(f"{topic}.dlq")
    send(c1, topic, [Given("k", b"1"), Given("k", b"2")])

    workers.run(content_rule(topic, [("key == 'k'", ("c2", f"{topic}.late"))]))
    said = workers.wait_for("by-content", "waits for the topic", lambda progress: progress.problem)
    assert said.problem == f"cluster 'c2' has no topic {topic}.late; create it, or name another one"
    c2.create(f"{topic}.late")
    workers.wait_until_caught_up("by-content", ends(c1, topic))
    assert values(c2.read(f"{topic}.late")) == [b"1", b"2"]

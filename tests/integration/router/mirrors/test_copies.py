"""A mirror copies records as they are: from where, under which names, and which of them."""

from __future__ import annotations

import os

from mesh.rpc import record_rules
from services.router.forwarding.orders import RunRule
from tests.fixtures.record_rules import FIRST_TIME, Side, Workers, ends, mirror


def test_key_value_headers_timestamp_and_partition_stay(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic, 3)
    c2.will_have(topic)
    values: list[bytes | None] = [b"apple", b"", None, b"\x00\xff" * 40]
    c1.write(topic, [(number % 3, values[number % 4]) for number in range(60)])

    workers.run(RunRule(mirror("apples", topic), revision=12, created=11))
    workers.wait_until_caught_up("apples", ends(c1, topic))

    assert [each.content for each in c2.read(topic)] == [each.content for each in c1.read(topic)]
    said = workers.wait_for("apples", "counts", lambda progress: progress.records_written == 60)
    assert (said.revision, said.problem) == (12, "")


def test_each_record_names_where_it_comes_from(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, [(0, b"apple"), (0, b"pear")])

    workers.run(RunRule(mirror("apples", topic), 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))

    cluster_id = c1.admin.list_topics(timeout=10).cluster_id.encode()
    assert [each.headers[-1] for each in c2.read(topic)] == [
        ("mesh-origin", b"0 apples " + cluster_id),
        ("mesh-origin", b"1 apples " + cluster_id),
    ]


def test_topics_of_a_prefix_get_names_by_the_template(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    red, green = c1.create(f"{topic}-red"), c1.create(f"{topic}-green", 2)
    for name in ("red", "green", "blue"):
        c2.will_have(f"{topic}.c1.{name}")
    c1.write(red, [(0, b"1")])
    c1.write(green, [(1, b"2")])
    rule = mirror("apples", topic_prefix=f"{topic}-", target_topic=f"{topic}.{{source_cluster}}.{{suffix}}")

    workers.run(RunRule(rule, 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, red, green))
    assert [each.value for each in c2.read(f"{topic}.c1.red")] == [b"1"]
    assert [(each.partition, each.value) for each in c2.read(f"{topic}.c1.green")] == [(1, b"2")]

    blue = c1.create(f"{topic}-blue")
    c1.write(blue, [(0, b"3")])
    workers.wait_until_caught_up("apples", ends(c1, blue))
    assert [each.value for each in c2.read(f"{topic}.c1.blue")] == [b"3"]


def test_it_begins_at_the_latest_record_or_at_a_time(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    for name in ("latest", "time"):
        c2.will_have(f"{topic}.{name}")
    c1.write(topic, [(0, b"%d" % number) for number in range(10)])  # a millisecond apart
    time = record_rules.StartAt()
    time.time.FromMilliseconds(FIRST_TIME + 4)

    latest = mirror("latest", topic, target_topic=f"{topic}.latest", start=record_rules.StartAt(latest=True))
    workers.run(RunRule(latest, 12, 12))
    workers.run(RunRule(mirror("time", topic, target_topic=f"{topic}.time", start=time), 13, 13))
    workers.wait_until_caught_up("latest", {(topic, 0): 10})
    c1.write(topic, [(0, b"new")])
    for rule_id in ("latest", "time"):
        workers.wait_until_caught_up(rule_id, {(topic, 0): 11})

    assert [each.value for each in c2.read(f"{topic}.latest")] == [b"new"]
    assert [each.value for each in c2.read(f"{topic}.time")] == [b"4", b"5", b"6", b"7", b"8", b"9", b"new"]


def test_filtered_and_transformed(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, [(0, b'{"kind":"apple","price":%d}' % price) for price in range(6)])
    rule = mirror(
        "apples",
        topic,
        filter="value.price >= 3",
        transforms=[
            record_rules.Transform(redact_json_field="price"),
            record_rules.Transform(drop_header="twice"),
            record_rules.Transform(set_header=record_rules.HeaderValue(name="by", value="mesh")),
        ],
    )

    workers.run(RunRule(rule, 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))

    copies = c2.read(topic)
    assert [each.value for each in copies] == [b'{"kind":"apple","price":"***"}'] * 3
    assert [name for name, _ in copies[0].headers] == ["index", "by", "mesh-origin"]
    said = workers.wait_for("apples", "counts", lambda progress: progress.records_written == 3)
    assert said.records_filtered == 3


def test_batches_are_as_small_as_the_target_wants_them(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic, max_message_bytes="200000")
    c2.will_have(topic)
    c1.write(topic, [(0, os.urandom(500)) for _ in range(1000)], **{"batch.size": 10_000})
    workers.run(RunRule(mirror("apples", topic), 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert [each.content for each in c2.read(topic)] == [each.content for each in c1.read(topic)]

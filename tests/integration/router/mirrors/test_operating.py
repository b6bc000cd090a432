"""Rules are paused, resumed, rewound, changed, removed and handed over; what stands in their way is said."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from confluent_kafka import TopicPartition

from mesh.rpc import record_rules, routing
from services.router.forwarding.orders import Clusters, RemoveRule, Rewind, RunRule, StopRule
from tests.fixtures.ports import free_block
from tests.fixtures.record_rules import WITHIN_S, Copy, Side, Workers, ends, mirror
from tests.fixtures.waiting import wait_until


def numbers(first: int, last: int) -> list[tuple[int, bytes | None]]:
    return [(0, b"%d" % number) for number in range(first, last)]


def values(copies: list[Copy]) -> list[int]:
    return [int(copy.value or b"-1") for copy in copies]


def test_a_paused_rule_goes_on_where_it_was(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, numbers(0, 5))
    rule = mirror("apples", topic)
    workers.run(RunRule(rule, 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))

    workers.run(RunRule(rule, 13, 11, paused=True))
    workers.wait_for("apples", "is paused", lambda said: said.revision == 13)
    c1.write(topic, numbers(5, 9))
    assert values(c2.read(topic)) == list(range(5))

    workers.run(RunRule(rule, 14, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert values(c2.read(topic)) == list(range(9))


def test_a_rewind_is_carried_out_once_whoever_runs_the_rule(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, numbers(0, 10))
    rule = mirror("apples", topic)
    workers.run(RunRule(rule, 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))

    back = record_rules.StartAt(offsets=record_rules.PartitionOffsets(topic=topic, offsets={0: 7}))
    workers.run(RunRule(rule, 13, 11, rewinds=(Rewind(13, back),)))
    wait_until(lambda: len(c2.read(topic)) == 13, "three are copied again")
    workers.kill()
    workers.start()
    c1.write(topic, numbers(10, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert values(c2.read(topic)) == [*range(10), 7, 8, 9, 10]


def test_a_rule_that_was_removed_and_created_again_begins_anew(
    c1: Side, c2: Side, workers: Workers, topic: str
) -> None:
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, numbers(0, 3))
    rule = mirror("apples", topic)
    workers.run(RunRule(rule, 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))

    workers.say(RemoveRule("apples"))
    workers.wait_until_ended("apples")
    workers.run(RunRule(rule, 20, 20))
    wait_until(lambda: values(c2.read(topic)) == [0, 1, 2, 0, 1, 2], "it begins anew")


def test_a_change_of_the_rule_keeps_its_position(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, numbers(0, 6))
    workers.run(RunRule(mirror("apples", topic), 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    workers.run(RunRule(mirror("apples", topic, filter="value >= 8"), 13, 11))
    workers.wait_for("apples", "is changed", lambda said: said.revision == 13)
    c1.write(topic, numbers(6, 10))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert values(c2.read(topic)) == [*range(6), 8, 9]


def test_two_processes_that_both_run_a_rule_write_each_record_once(
    c1: Side, c2: Side, workers: Workers, topic: str, tmp_path: Path
) -> None:
    c1.create(topic)
    c2.will_have(topic)
    workers.run(RunRule(mirror("apples", topic), 12, 11))
    other = Workers(tmp_path / "other.log", (c1, c2))
    other.mesh_id = workers.mesh_id
    with other.running():
        other.run(RunRule(mirror("apples", topic), 12, 11))
        for first in (0, 100, 200):
            c1.write(topic, numbers(first, first + 100))
            wait_until(partial(_has, c2, topic, first + 100), "one of them has copied them", WITHIN_S)
        workers.say(StopRule("apples"))
        workers.wait_until_ended("apples")
        c1.write(topic, numbers(300, 310))
        other.wait_until_caught_up("apples", ends(c1, topic))
    assert values(c2.read(topic)) == list(range(310))


def test_records_that_retention_took_are_never_passed_over_silently(
    c1: Side, c2: Side, workers: Workers, topic: str
) -> None:
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, numbers(0, 3))
    rule = mirror("apples", topic)
    workers.run(RunRule(rule, 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    workers.run(RunRule(rule, 13, 11, paused=True))
    workers.wait_for("apples", "is paused", lambda said: said.revision == 13)
    c1.write(topic, numbers(3, 9))
    [future] = c1.admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    future.result(WITHIN_S)

    workers.run(RunRule(rule, 14, 11))
    said = workers.wait_for("apples", "has a problem", lambda said: said.problem)
    assert "the next offset to read is 3, the log has 7 to 9" in said.problem

    earliest = record_rules.StartAt(earliest=True)
    workers.run(RunRule(rule, 15, 11, rewinds=(Rewind(15, earliest),)))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert values(c2.read(topic)) == [0, 1, 2, 7, 8]


def test_a_target_that_is_away_is_named_and_waited_for(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, numbers(0, 3))
    nobody = routing.ClusterSpec(cluster_name="c2", bootstrap_servers=[f"127.0.0.1:{free_block(1)}"])
    workers.say(Clusters((c1.spec, nobody), workers.mesh_id))
    workers.run(RunRule(mirror("apples", topic), 12, 11))
    said = workers.wait_for("apples", "has a problem", lambda said: said.problem)
    assert said.problem.startswith("cluster 'c2'")

    workers.say(Clusters((c1.spec, c2.spec), workers.mesh_id))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert values(c2.read(topic)) == [0, 1, 2]
    workers.wait_for("apples", "goes on", lambda said: not said.problem)


def test_an_absent_topic_is_named(workers: Workers, topic: str) -> None:
    workers.run(RunRule(mirror("apples", topic), 12, 11))
    said = workers.wait_for("apples", "has a problem", lambda said: said.problem)
    assert said.problem == f"topic {topic!r} is not on cluster 'c1'"


def _has(side: Side, topic: str, count: int) -> bool:
    return len(side.read(topic)) >= count

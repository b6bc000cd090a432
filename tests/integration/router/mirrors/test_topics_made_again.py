"""A source topic is deleted and created again: the rule stops and says so, however long the new log is."""

from __future__ import annotations

from mesh.rpc import record_rules
from services.router.forwarding import memory, upkeep
from services.router.forwarding.connections import Cluster
from services.router.forwarding.memory import CarriedOut, Entry, Memory, SourcePartition
from services.router.forwarding.orders import Rewind, RunRule
from tests.fixtures.record_rules import EARLIEST, WITHIN_S, Side, Workers, ends, mirror
from tests.fixtures.waiting import wait_until


def test_a_longer_log_under_the_old_name_is_not_read_on_until_the_rule_is_rewound(
    c1: Side, c2: Side, workers: Workers, topic: str
) -> None:
    rule = copied(c1, c2, workers, topic)
    workers.run(RunRule(rule, 13, 11, paused=True))
    workers.wait_for("apples", "is paused", lambda said: said.revision == 13)
    make_again(c1, topic, [b"new-%d" % number for number in range(6)])

    workers.run(RunRule(rule, 14, 11))
    assert problem(workers).startswith(f"topic {topic} on cluster 'c1' was deleted and created again")
    assert values(c2, topic) == [b"old-0", b"old-1", b"old-2"]

    workers.run(RunRule(rule, 15, 11, rewinds=(Rewind(15, EARLIEST),)))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert values(c2, topic) == [b"old-0", b"old-1", b"old-2", *(b"new-%d" % number for number in range(6))]
    workers.run(RunRule(rule, 16, 11, rewinds=(Rewind(15, EARLIEST),)))
    workers.wait_for("apples", "goes on in its next session", lambda said: said.revision == 16 and not said.problem)


def test_a_running_rule_stops_when_it_looks_at_the_topics_again(
    c1: Side, c2: Side, workers: Workers, topic: str
) -> None:
    copied(c1, c2, workers, topic)
    make_again(c1, topic, [b"new-%d" % number for number in range(6)])
    assert topic in problem(workers)


def test_of_several_topics_the_one_that_is_new_may_be_rewound_alone(
    c1: Side, c2: Side, workers: Workers, topic: str
) -> None:
    red, green = f"{topic}.red", f"{topic}.green"
    for each in (red, green):
        c1.create(each)
        c2.will_have(each)
        c1.write(each, [(0, b"old")])
    rule = mirror("apples", topic_prefix=f"{topic}.")
    workers.run(RunRule(rule, 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, red, green))
    workers.run(RunRule(rule, 13, 11, paused=True))
    workers.wait_for("apples", "is paused", lambda said: said.revision == 13)
    make_again(c1, red, [b"new", b"newer"])

    workers.run(RunRule(rule, 14, 11))
    assert f"topic {red} on" in problem(workers)

    begin = record_rules.StartAt(offsets=record_rules.PartitionOffsets(topic=red, offsets={0: 0}))
    workers.run(RunRule(rule, 15, 11, rewinds=(Rewind(15, begin),)))
    workers.wait_until_caught_up("apples", ends(c1, red, green))
    assert values(c2, red) == [b"old", b"new", b"newer"]
    assert values(c2, green) == [b"old"]


def test_a_position_that_names_no_topic_goes_on_and_names_it_from_then_on(
    c1: Side, c2: Side, workers: Workers, topic: str
) -> None:
    """As releases before wrote them."""
    c1.create(topic)
    c2.create(topic)
    c1.write(topic, [(0, b"old-%d" % number) for number in range(4)])
    there, place = Memory(workers.mesh_id, "apples", 11, CarriedOut(begun=True)), SourcePartition(topic, 0)
    remember(c2, there, [there.carried_out_entry(), there.position_entry(place, 3)])

    workers.run(RunRule(mirror("apples", topic), 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert values(c2, topic) == [b"old-3"]
    make_again(c1, topic, [b"new-%d" % number for number in range(6)])
    assert topic in problem(workers)


def copied(c1: Side, c2: Side, workers: Workers, topic: str) -> record_rules.RecordRuleSpec:
    """A mirror that has copied three records."""
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, [(0, b"old-%d" % number) for number in range(3)])
    rule = mirror("apples", topic)
    workers.run(RunRule(rule, 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    return rule


def make_again(side: Side, topic: str, records: list[bytes]) -> None:
    """As an operator empties a topic in a hurry."""
    [future] = side.admin.delete_topics([topic]).values()
    future.result(WITHIN_S)
    wait_until(lambda: side.partitions(topic) == 0, f"{topic} is gone", WITHIN_S)
    side.create(topic)
    side.write(topic, [(0, value) for value in records])


def problem(workers: Workers) -> str:
    said = workers.wait_for("apples", "says what became of its topic", lambda said: "created again" in said.problem)
    return said.problem


def values(side: Side, topic: str) -> list[bytes | None]:
    return [copy.value for copy in side.read(topic)]


def remember(side: Side, there: Memory, entries: list[Entry]) -> None:
    """Writes what a worker would have written."""
    cluster = Cluster(side.spec, there.rule_id)
    upkeep.ensure_positions(cluster, cluster.metadata())
    producer = side.producer()
    for entry in entries:
        producer.produce(memory.TOPIC, entry.value, entry.key, there.partition)
    assert producer.flush(WITHIN_S) == 0

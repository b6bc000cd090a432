"""Consumer groups go on at a mirror's target where they were on its source: no record missed, none read twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from mesh import durations
from mesh.rpc import record_rules
from services.router.forwarding.orders import GroupSync, RunRule
from tests.fixtures.record_rules import WITHIN_S, Side, Workers, ends, mirror
from tests.fixtures.waiting import wait_unless, wait_until

CONTINUOUS = record_rules.GroupOffsets(continuous=True, sync_interval=durations.of_ms(200))


def commit(side: Side, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    partitions = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    [future] = side.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)]).values()
    future.result(WITHIN_S)


def committed(side: Side, group: str, topic: str) -> dict[int, int]:
    def asked() -> list[ConsumerGroupTopicPartitions]:
        """Empty while the coordinator of a new broker loads."""
        [future] = side.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        try:
            return [future.result(WITHIN_S)]
        except KafkaException as error:
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return []

    [found] = wait_until(asked, "the coordinator has loaded")
    return {
        each.partition: each.offset for each in found.topic_partitions or () if each.topic == topic and each.offset >= 0
    }


def in_transactions(side: Side, topic: str, lots: Iterable[tuple[list[bytes], bool]]) -> None:
    """Lots of records, each in a transaction that is committed or given up: offsets with gaps."""
    producer = side.producer(**{"transactional.id": f"{topic}-writer"})
    producer.init_transactions(WITHIN_S)
    for values, commits in lots:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(WITHIN_S)
        if commits:
            producer.commit_transaction(WITHIN_S)
        else:
            producer.abort_transaction(WITHIN_S)


def test_after_whichever_record_a_group_moves_it_misses_none_and_repeats_none(
    c1: Side, c2: Side, workers: Workers, topic: str, unique_name: Callable[[str], str]
) -> None:
    c1.create(topic)
    c2.create(topic)
    c2.write(topic, [(0, b"somebody else's")])
    lots = [([b"%d" % (10 * lot + number) for number in range(4)], lot % 3 != 1) for lot in range(6)]
    in_transactions(c1, topic, lots)
    there = c1.read(topic)
    end = ends(c1, topic)[topic, 0]
    groups = {unique_name(f"group-{offset}"): offset for offset in range(end + 1)}
    for group, offset in groups.items():
        commit(c1, group, topic, {0: offset})
    rule = mirror("apples", topic, filter="value != 22 && value != 3")

    workers.run(RunRule(rule, 12, 11, syncs=(GroupSync(12, tuple(groups)),)))
    workers.wait_for("apples", "has synced", lambda said: said.HasField("groups_synced_time"))
    workers.wait_until_caught_up("apples", {(topic, 0): end})
    wait_until(lambda: len(committed(c2, list(groups)[-1], topic)) == 1, "the last group has followed")
    c2.write(topic, [(0, b"somebody else's, later")])

    copies = c2.read(topic)
    left_out = (b"22", b"3")

    def misplaced() -> str | None:
        """Groups follow in rounds: one that was early goes on, once more has been copied."""
        for group, offset in groups.items():
            at = committed(c2, group, topic).get(0, end)
            expected = [each.value for each in there if each.offset >= offset and each.value not in left_out]
            found = [each.value for each in copies if each.offset >= at]
            if found != [*expected, b"somebody else's, later"]:
                return f"a group at {offset} goes on at {at}, with {found}"
        return None

    wait_unless(misplaced, "each group has followed")


def test_a_group_that_reads_on_follows_until_it_moves(
    c1: Side, c2: Side, workers: Workers, topic: str, group: str
) -> None:
    c1.create(topic, 2)
    c2.will_have(topic)
    c1.write(topic, [(number % 2, b"%d" % number) for number in range(100)])
    workers.run(RunRule(mirror("apples", topic, group_offsets=CONTINUOUS), 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))

    before = consumed(c1, group, topic, 37)
    wait_until(lambda: sum(committed(c2, group, topic).values()) >= 37, "the group has followed")
    c1.write(topic, [(number % 2, b"%d" % number) for number in range(100, 120)])
    before += consumed(c1, group, topic, 20)
    at = committed(c1, group, topic)
    copies = c2.read(topic)

    def has_followed() -> bool:
        """All records that it has read there lie before it here."""
        here = committed(c2, group, topic)
        return all(
            sum(copy.partition == number and copy.offset < here.get(number, 0) for copy in copies) >= offset
            for number, offset in at.items()
        )

    wait_until(has_followed, "the group has followed again")
    workers.wait_until_caught_up("apples", ends(c1, topic))
    after = consumed(c2, group, topic, 120 - 57)
    assert sorted(before + after, key=int) == [b"%d" % number for number in range(120)]


def test_offsets_do_not_go_back_unless_ordered(c1: Side, c2: Side, workers: Workers, topic: str, group: str) -> None:
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, [(0, b"%d" % number) for number in range(10)])
    commit(c1, group, topic, {0: 7})
    rule = mirror("apples", topic, group_offsets=CONTINUOUS)
    workers.run(RunRule(rule, 12, 11))
    wait_until(lambda: committed(c2, group, topic) == {0: 7}, "the group has followed")

    other = f"{group}-other"
    commit(c1, group, topic, {0: 3})
    commit(c1, other, topic, {0: 3})
    wait_until(lambda: committed(c2, other, topic) == {0: 3}, "a look after the group went back")
    assert committed(c2, group, topic) == {0: 7}

    workers.run(RunRule(rule, 13, 11, syncs=(GroupSync(13, (group,)),)))
    wait_until(lambda: committed(c2, group, topic) == {0: 3}, "the group went back as ordered")


def test_a_group_that_would_skip_records_stays_until_it_has_read_them_or_is_ordered(
    c1: Side, c2: Side, workers: Workers, topic: str, unique_name: Callable[[str], str]
) -> None:
    """Records from before the mirror's beginning are not on the target, or not this mirror's."""
    behind, ordered, on = unique_name("behind"), unique_name("ordered"), unique_name("on")
    c1.create(topic)
    c2.will_have(topic)
    c1.write(topic, [(0, b"%d" % number) for number in range(50)])
    start = record_rules.StartAt(offsets=record_rules.PartitionOffsets(topic=topic, offsets={0: 40}))
    for group, offset in ((behind, 30), (ordered, 35), (on, 45)):
        commit(c1, group, topic, {0: offset})
    rule = mirror("apples", topic, group_offsets=CONTINUOUS, start=start)

    workers.run(RunRule(rule, 12, 11))
    wait_until(lambda: committed(c2, on, topic) == {0: 5}, "the group that has read on follows")
    said = workers.wait_for("apples", "names the group", lambda said: "unread offsets" in said.problem)
    assert f"group '{behind}' has 10 unread offsets of {topic}-0" in said.problem
    assert "and 1 more groups" in said.problem
    assert committed(c2, behind, topic) == committed(c2, ordered, topic) == {}

    workers.run(RunRule(rule, 13, 11, syncs=(GroupSync(13, (ordered,)),)))
    wait_until(lambda: committed(c2, ordered, topic) == {0: 0}, "the group goes where the order says")
    commit(c1, behind, topic, {0: 40})
    wait_until(lambda: committed(c2, behind, topic) == {0: 0}, "the group has read all from before the mirror")
    workers.wait_for("apples", "has no problem", lambda said: not said.problem)


def test_a_group_with_members_on_the_target_is_left_alone(
    c1: Side, c2: Side, workers: Workers, topic: str, group: str
) -> None:
    c1.create(topic)
    c2.create(topic)
    c1.write(topic, [(0, b"%d" % number) for number in range(10)])
    member = c2.consumer(**{"group.id": group, "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    wait_until(lambda: [member.poll(0.1)] and member.assignment(), "the member has its partition")
    commit(c1, group, topic, {0: 7})
    other = f"{group}-other"
    commit(c1, other, topic, {0: 7})

    workers.run(RunRule(mirror("apples", topic, group_offsets=CONTINUOUS), 12, 11))
    wait_until(lambda: committed(c2, other, topic) == {0: 7}, "the other group has followed")
    assert committed(c2, group, topic) == {}
    member.close()
    wait_until(lambda: committed(c2, group, topic) == {0: 7}, "the group has followed")


def consumed(side: Side, group: str, topic: str, count: int) -> list[bytes]:
    """So many records, read and committed as a group's only member does."""
    member: Any = side.consumer(
        **{
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
            "enable.auto.offset.store": False,
        }
    )
    member.subscribe([topic])
    values: list[bytes] = []
    while len(values) < count:
        message = member.poll(WITHIN_S)
        assert message is not None and message.error() is None
        member.store_offsets(message)
        values.append(message.value())
    member.commit(asynchronous=False)
    member.close()
    return values

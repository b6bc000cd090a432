"""What a target remembers of a rule is read back as it was written, and only by that rule."""

from __future__ import annotations

from services.router.forwarding.memory import CarriedOut, Entry, Memory, SourcePartition
from services.router.forwarding.points import Point, Points

RED_3 = SourcePartition("apples-red", 3)


def written(memory: Memory) -> list[Entry]:
    memory.carried_out = CarriedOut(True, rewound=12, synced=13)
    points = Points([Point(0, 5, True), Point(70, 99)])
    told = [memory.carried_out_entry(), memory.position_entry(RED_3, 77), memory.points_entry(RED_3, points)]
    return [*told, memory.topic_id_entry(RED_3, "PqpCasJ2T/6U7UhM6Obxyw")]


def read_back(memory: Memory, entries: list[Entry]) -> Memory:
    for entry in entries:
        memory.fold(entry.key, entry.value)
    return memory


def test_a_rule_reads_back_what_it_wrote() -> None:
    memory = read_back(Memory("mesh", "apples", 11), written(Memory("mesh", "apples", 11)))
    assert memory.carried_out == CarriedOut(True, 12, 13)
    assert memory.positions == {RED_3: 77}
    assert memory.points[RED_3].kept == (Point(0, 5, True), Point(70, 99))
    assert memory.topic_ids == {RED_3: "PqpCasJ2T/6U7UhM6Obxyw"}


def test_another_rule_or_another_meshs_means_nothing_to_it() -> None:
    for other in (Memory("mesh", "pears", 11), Memory("other", "apples", 11), Memory("mesh", "apples-2", 11)):
        memory = read_back(Memory("mesh", "apples", 11), written(other))
        assert memory == Memory("mesh", "apples", 11)
    assert read_back(Memory("mesh", "apples", 11), [Entry(b"not json", b"either")]) == Memory("mesh", "apples", 11)


def test_an_earlier_rule_of_its_id_is_forgotten() -> None:
    entries = written(Memory("mesh", "apples", 5))
    memory = read_back(Memory("mesh", "apples", 11), entries)
    assert (memory.positions, memory.topic_ids, memory.carried_out) == ({}, {}, CarriedOut())
    gone = list(memory.forgetting_outdated())
    assert {entry.key for entry in gone} == {entry.key for entry in entries}
    assert all(entry.value is None for entry in gone)
    assert read_back(memory, gone).outdated == set()


def test_a_removed_rule_leaves_nothing() -> None:
    entries = written(Memory("mesh", "apples", 11))
    memory = read_back(Memory("mesh", "apples", 11), entries)
    assert {entry.key for entry in memory.forgetting()} == {entry.key for entry in entries}

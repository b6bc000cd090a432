"""What an instance holds before it gives it, and keeps until it is acknowledged."""

import pytest

from services.sidecar.consuming.held_records import HeldRecords, Unacknowledged
from services.sidecar.records import Partition

A, B = Partition("a", 0), Partition("a", 1)


class Held:
    """A message as the client library shows one."""

    def __init__(self, offset: int, value: bytes = b"12345", partition: int = 0, key: bytes | None = None) -> None:
        self._at, self._value, self._key = (partition, offset), value, key

    def topic(self) -> str:
        return "a"

    def partition(self) -> int:
        return self._at[0]

    def offset(self) -> int:
        return self._at[1]

    def key(self) -> bytes | None:
        return self._key

    def __len__(self) -> int:
        return len(self._value)


def held(*messages: Held) -> HeldRecords:
    records = HeldRecords()
    for message in messages:
        records.add(message)  # type: ignore[arg-type]
    return records


def offsets(messages: object) -> list[int]:
    return [message.offset() for message in messages]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("max_records", "max_bytes", "taken"),
    [(10, 100, [0, 1, 2]), (2, 100, [0, 1]), (10, 10, [0, 1]), (10, 11, [0, 1]), (10, 1, [0]), (0, 100, [])],
)
def test_what_fits_is_taken_from_the_front_and_one_at_least(max_records: int, max_bytes: int, taken: list[int]) -> None:
    records = held(Held(0), Held(1), Held(2))
    assert offsets(records.take(max_records, max_bytes)) == taken
    assert (len(records), records.bytes) == (3 - len(taken), 5 * (3 - len(taken)))


def test_keys_count_as_bytes_too() -> None:
    assert offsets(held(Held(0, b"", key=b"12345"), Held(1)).take(10, 9)) == [0]


def test_what_is_given_back_comes_next_in_its_order() -> None:
    records = held(Held(0), Held(1), Held(2))
    records.give_back(records.take(2, 100))
    assert (records.bytes, offsets(records.take(10, 100))) == (15, [0, 1, 2])


def test_a_partition_that_goes_takes_along_its_own() -> None:
    records = held(Held(0), Held(7, partition=1), Held(1), Held(8, partition=1))
    assert records.first_offsets() == {A: 0, B: 7}
    records.drop({A})
    assert (records.bytes, offsets(records.take(10, 100))) == (10, [7, 8])


def window(max_records: int = 3, max_bytes: int = 100) -> Unacknowledged:
    return Unacknowledged(max_records, max_bytes)


def test_the_window_closes_and_opens_partition_by_partition() -> None:
    given = window()
    given.add([Held(0), Held(7, partition=1), Held(1)])  # type: ignore[list-item]
    assert given.room == 0
    given.acknowledge(A, 1)  # the next one to come is 1
    assert (given.room, len(given)) == (1, 2)
    given.acknowledge(A, 1)
    given.acknowledge(B, 100)
    assert (given.room, offsets(given.take_back())) == (2, [1])
    assert (given.room, given.take_back()) == (3, [])


def test_the_window_is_bounded_by_bytes_and_lets_one_through_at_least() -> None:
    given = window(max_records=100, max_bytes=4)
    assert given.room == 100
    given.add([Held(0)])  # type: ignore[list-item]
    assert given.room == 0


def test_partitions_of_others_need_no_acknowledgement() -> None:
    given = window()
    given.add([Held(0), Held(7, partition=1)])  # type: ignore[list-item]
    given.drop([A])
    assert (given.room, offsets(given.take_back())) == (2, [7])

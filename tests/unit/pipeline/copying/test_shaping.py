"""What a copy is, told by its original."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mesh.judging.records import Headers
from mesh.rpc import record_rules, replays
from services.pipeline.copying.errors import CopyError
from services.pipeline.copying.routes import Route
from services.pipeline.copying.transforms import CLIENTS_CHOICE, TIME_OF_WRITING, Shape

ROUTE = Route("apples", "c1", "up.apples", "c2", "pears", "g")
SOURCE = ("mesh-replay-source", b"c1/up.apples/5/42")


@dataclass(frozen=True, slots=True)
class Sample:
    key_: bytes | None = b"k"
    value_: bytes | None = b'{"n": 1}'
    headers_: tuple[tuple[str, bytes | None], ...] = ()
    time: int = 1_700_000_000_000

    def topic(self) -> str:
        return "up.apples"

    def partition(self) -> int:
        return 5

    def offset(self) -> int:
        return 42

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def headers(self) -> Headers | None:
        return list(self.headers_) or None

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time


def shape(copy: replays.ReplayToTopic | None = None) -> Shape:
    return Shape(ROUTE, copy or replays.ReplayToTopic(), target_partitions=3)


def test_a_copy_says_where_its_original_is_and_is_the_same_besides() -> None:
    record = Sample(headers_=(("a", b"1"), ("a", None)))
    copy = shape()(record)
    assert copy == (record.value_, b"k", 5, record.time, [("a", b"1"), ("a", None), SOURCE])
    assert shape().is_plain


def test_a_copys_copy_says_where_the_copy_was() -> None:
    record = Sample(headers_=(("mesh-replay-source", b"c0/x/0/1"), ("a", b"1")))
    assert shape()(record).headers == [("a", b"1"), SOURCE]


def test_a_copy_of_now_keeps_its_originals_time_in_a_header() -> None:
    copy = shape(replays.ReplayToTopic(timestamps=replays.REPLAY_TIMESTAMPS_NOW))(Sample())
    assert copy.timestamp == TIME_OF_WRITING
    assert copy.headers == [SOURCE, ("mesh-replay-timestamp", b"1700000000000")]


def test_the_first_millisecond_of_1970_is_what_clients_call_now_so_it_is_kept_in_the_header() -> None:
    assert shape()(Sample(time=0)).headers == [SOURCE, ("mesh-replay-timestamp", b"0")]
    assert shape()(Sample(time=-1)).timestamp == TIME_OF_WRITING


@pytest.mark.parametrize(("key", "partition"), [(b"k", CLIENTS_CHOICE), (b"", CLIENTS_CHOICE), (None, 2)])
def test_by_key_clients_choose_and_what_has_none_follows_its_originals_partition(
    key: bytes | None, partition: int
) -> None:
    by_key = shape(replays.ReplayToTopic(partitioning=replays.REPLAY_PARTITIONING_BY_KEY))
    assert by_key(Sample(key_=key)).partition == partition


def test_filters_and_transforms_are_those_of_record_rules() -> None:
    redact = record_rules.Transform(redact_json_field="card")
    chosen = shape(replays.ReplayToTopic(filter="value.n > 1", transforms=[redact]))
    assert not chosen.takes(Sample())
    record = Sample(value_=b'{"n": 2, "card": "4111"}')
    assert chosen.takes(record)
    assert chosen(record).value == b'{"n": 2, "card": "***"}'


def test_what_cant_be_judged_ends_the_copy_there() -> None:
    chosen = shape(replays.ReplayToTopic(filter="value.n > 1"))
    with pytest.raises(CopyError, match=r"up\.apples/5 offset 42: .*not JSON"):
        chosen.takes(Sample(value_=b"no"))
    redact = shape(replays.ReplayToTopic(transforms=[record_rules.Transform(redact_json_field="card")]))
    with pytest.raises(CopyError, match=r"up\.apples/5 offset 42: card can't be redacted"):
        redact(Sample(value_=b"no"))


def test_a_filter_that_is_none_is_told_before_anything_is_copied() -> None:
    with pytest.raises(ValueError, match="undeclared reference"):
        shape(replays.ReplayToTopic(filter="nothing.at.all == 1"))

"""What values are taken for, what is counted of them, and what an order for profiles means."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import profiles, replays
from services.pipeline.commands.profile import lines
from services.pipeline.kafka.positions import Span, StreamError
from services.pipeline.kafka.ranges import Range
from services.pipeline.profiling.formats import Format, NoSchemas, Schema, look
from services.pipeline.profiling.order import Asked, Profiling
from services.pipeline.profiling.registry import MOST_ABSENT, RegistryAccess
from services.pipeline.profiling.tallies import MOST_NAMES, Tallies, Tally
from tests.fixtures.small_registry import SmallRegistry

WITH_SCHEMA = b"\0\0\0\0\7"


@dataclass
class Known:
    """A registry of one schema, whose documents are JSON whatever it is called."""

    format: Format

    def find(self, number: int) -> Schema | None:
        return self if number == 7 else None

    def document(self, payload: bytes) -> Any:
        return json.loads(payload)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Format.NULL),
        (b'{"a": 1}', Format.JSON),
        (b"[1, 2]", Format.JSON),
        (b"17", Format.JSON),
        (b"", Format.TEXT),
        ("Äpfel\n".encode(), Format.TEXT),
        (b"{broken", Format.TEXT),
        (b"[" * 100_000, Format.TEXT),
        (b"\xff\xfe", Format.BINARY),
        (b"\1\2\3", Format.BINARY),
        (WITH_SCHEMA + b'{"a": 1}', Format.JSON_SCHEMA),
        (WITH_SCHEMA + b"\2\4", Format.UNKNOWN_SCHEMA),
        (b"\0\0", Format.BINARY),
    ],
)
def test_what_a_value_is_without_a_registry(value: bytes | None, expected: Format) -> None:
    assert look(value, NoSchemas()).format is expected


def test_a_registry_tells_formats_apart_and_knows_what_only_looks_like_one() -> None:
    assert look(WITH_SCHEMA + b'{"a": 1}', Known(Format.AVRO)).format is Format.AVRO
    assert look(WITH_SCHEMA + b'{"a": 1}', Known(Format.AVRO)).document == {"a": 1}
    assert look(WITH_SCHEMA + b"\2", Known(Format.PROTOBUF)).format is Format.PROTOBUF
    assert look(b"\0\0\0\0\x08zzz", Known(Format.AVRO)).format is Format.BINARY


def test_a_registry_is_not_asked_for_each_value_that_happens_to_begin_with_a_zero() -> None:
    with SmallRegistry({7: {"schema": "", "schemaType": "JSON"}}) as registry:
        schemas = RegistryAccess(registry.url).schemas()
        numbers = [
            value for value in range(1_000) if look(b"\0" + value.to_bytes(4) + b"\1", schemas).format is Format.BINARY
        ]
        assert len(numbers) == 999
        assert len(registry.asked) == MOST_ABSENT + 1
        assert look(WITH_SCHEMA + b"{}", schemas).format is Format.JSON_SCHEMA


def test_a_registry_whose_answers_are_none_is_no_registry() -> None:
    with SmallRegistry({7: {"detail": "what a proxy says"}}) as registry:
        assert look(WITH_SCHEMA + b"\1", RegistryAccess(registry.url).schemas()).format is Format.UNKNOWN_SCHEMA


def tallied(*values: object) -> Tallies:
    tallies = Tallies(NoSchemas())
    for value in values:
        tallies.add(0, json.dumps(value).encode(), ())
    return tallies


def test_fields_are_counted_by_path_and_type_and_presence_by_record() -> None:
    counts = tallied({"id": 1, "of": {"x": None}}, {"id": "a", "tags": [{"n": 1.5}, {"n": True}]}).counts
    assert counts[Tally("type", "id", "integer")] == counts[Tally("type", "id", "string")] == 1
    assert counts[Tally("present", "id")] == 2
    assert counts[Tally("type", "of.x", "null")] == 1
    assert Tally("present", "of.x") not in counts
    assert counts[Tally("type", "tags[]", "object")] == 2
    assert counts[Tally("present", "tags[].n")] == 1
    assert counts[Tally("document")] == 2


def test_names_that_are_data_fill_no_memory() -> None:
    counts = tallied({f"customer-{number}": 1 for number in range(3 * MOST_NAMES)}).counts
    assert len([each for each in counts if each.kind == "type"]) == MOST_NAMES


def test_headers_count_once_for_each_record() -> None:
    tallies = Tallies(NoSchemas())
    tallies.add(2, None, ["trace", "trace", "kind"])
    assert tallies.counts[Tally("header", "trace")] == tallies.counts[Tally("header", "kind")] == 1
    assert tallies.counts[Tally("partition", "2")] == tallies.counts[Tally("format", "null")] == 1


@dataclass
class Looking:
    """Topics of one partition with a hundred records."""

    asked: list[Asked] = field(default_factory=list)
    looked_at: list[Span] = field(default_factory=list)
    failure: StreamError | None = None

    def spans(self, asked: Asked) -> Sequence[Span]:
        self.asked.append(asked)
        return [Span(asked.topic, 0, 0, 100)]

    def profile(self, asked: Asked, spans: Sequence[Span]) -> profiles.TopicProfile:
        if self.failure is not None:
            raise self.failure
        self.looked_at += spans
        records = sum(each.end - each.start for each in spans)
        return profiles.TopicProfile(records=records, partition_records={0: records})

    def cancel(self) -> None:
        raise AssertionError("nothing runs for long here")


def carried_out(
    looking: Looking, *, sample: int = 0, cancelled: bool = False, **of_spec: Any
) -> list[replays.ReportReplayRequest]:
    since = Timestamp()
    since.FromDatetime(datetime(2026, 11, 21))
    spec = replays.ReplaySpec(
        ranges=[replays.ReplayRange(topic="apples", partition=0, start_time=since)],
        profile=replays.ReplayToProfile(sample=sample),
        **of_spec,
    )
    places = [replays.ReplayPlace(topic="apples", cluster="green", upstream_topic="fruit.apples")]
    reports: list[replays.ReportReplayRequest] = []
    stopping = threading.Event()
    if cancelled:
        stopping.set()
    Profiling(replays.Replay(name="replays/1", spec=spec, places=places), looking, reports.append, stopping).run()
    return reports


def test_an_order_is_looked_at_where_the_topic_is_and_told_as_clients_know_it() -> None:
    looking = Looking()
    plan, progress, end = carried_out(looking)
    midnight = datetime(2026, 11, 21, tzinfo=UTC)
    assert looking.asked[0].ranges == (Range("fruit.apples", midnight, None, frozenset({0}), "green"),)
    assert (plan.partitions[0].topic, plan.partitions[0].end_offset, plan.partitions[0].position) == ("apples", 100, 0)
    assert (progress.partitions[0].position, progress.partitions[0].records) == (100, 100)
    assert end.state == replays.REPLAY_STATE_DONE
    assert (end.profiles[0].topic, end.profiles[0].cluster, end.profiles[0].is_sample) == ("apples", "green", False)


def test_a_sample_is_the_last_of_each_partition() -> None:
    looking = Looking()
    *_, end = carried_out(looking, sample=10)
    assert looking.looked_at == [Span("apples", 0, 90, 100)]
    assert end.profiles[0].is_sample


def test_a_dry_run_looks_at_nothing() -> None:
    looking = Looking()
    *_, end = carried_out(looking, dry_run=True)
    assert (end.state, end.description) == (replays.REPLAY_STATE_DONE, "100 offsets would be looked at")
    assert not looking.looked_at


def test_who_is_told_to_stop_says_so_and_what_can_not_be_read_is_told() -> None:
    *_, cancelled = carried_out(Looking(), cancelled=True)
    assert cancelled.state == replays.REPLAY_STATE_CANCELLED
    *_, failed = carried_out(Looking(failure=StreamError("apples/0 stands at offset 3")))
    assert (failed.state, failed.description) == (replays.REPLAY_STATE_FAILED, "apples/0 stands at offset 3")


def test_what_people_read() -> None:
    profile = profiles.TopicProfile(
        topic="apples",
        records=200,
        is_sample=True,
        null_keys=50,
        distinct_keys=3,
        top_key_share=0.5,
        keys=profiles.ByteSizes(total=600, smallest=2, median=4, p99=6, largest=8),
        formats={"json": 150, "text": 50},
        fields=[profiles.FieldProfile(path="seller.id", types={"integer": 149, "null": 1}, null_rate=0.25)],
    )
    text = list(lines(profile))
    assert text[0] == "apples: 200 records (a sample)"
    assert "  keys: 600 bytes; 2 to 8, half up to 4, 99 % up to 6" in text
    assert "  keys: about 3 different; the most frequent has 50.0%" in text
    assert "  without key 25.0%, without value 0.0%" in text
    assert "  formats: json 75.0%, text 25.0%" in text
    assert text[-1] == "    seller.id: integer, null; missing in 25.0%"
    assert list(lines(profiles.TopicProfile(topic="pears"))) == ["pears: 0 records"]

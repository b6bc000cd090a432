"""A topic of many kinds of records is looked at: what is told is right, and tells nothing of their content."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from mesh.rpc import profiles, replays
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.small_registry import SmallRegistry
from tests.integration.pipeline.orchard import Orchard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 240
SECRET = "nobody's business"
ALL = replays.ReplayRange(topic="fruit")
AVRO, PROTOBUF, UNKNOWN = 7, 8, 9
PEAR = {
    "type": "record",
    "name": "Pear",
    "fields": [{"name": "weight", "type": "int"}, {"name": "wax", "type": "null"}],
}


@pytest.fixture(scope="module")
def registry() -> Iterator[SmallRegistry]:
    schemas = {AVRO: {"schema": json.dumps(PEAR)}, PROTOBUF: {"schema": "syntax …", "schemaType": "PROTOBUF"}}
    with SmallRegistry(schemas, user_info="pipeline:pass") as registry:
        yield registry


def value(number: int) -> bytes | None:
    """Every eighth record of a kind."""
    import fastavro

    match number % 8:
        case 0 | 1:
            return json.dumps(
                {"name": SECRET, "size": number, "tags": ["a"]} if number % 8 else {"name": None}
            ).encode()
        case 2:
            avro = io.BytesIO()
            fastavro.schemaless_writer(avro, PEAR, {"weight": number, "wax": None})
            return b"\0" + AVRO.to_bytes(4) + avro.getvalue()
        case 3:
            return b"\0" + PROTOBUF.to_bytes(4) + b"\0\1\2"
        case 4:
            return b"\0" + UNKNOWN.to_bytes(4) + b"\1\2"
        case 5:
            return None
        case 6:
            return SECRET.encode()
    return b"\xff" * 100


Headers = list[tuple[str, str | bytes | None]]


@dataclass
class Looked:
    """A profile of the topic, and how it was reported."""

    profile: profiles.TopicProfile
    reports: list[replays.ReportReplayRequest]


@pytest.fixture
def mixed(orchard: Orchard, kafka_c1: KafkaCluster) -> str:
    """Half of the records have one key; a quarter has none."""
    topic = orchard.create()
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap})
    for number in range(RECORDS):
        key = SECRET.encode() if number % 2 else None if number % 4 else b"%d" % number
        headers: Headers = [("trace", SECRET.encode()), ("trace", b"1")] if number % 3 == 0 else []
        producer.produce(topic, value(number), key, partition=number % 2, headers=headers, timestamp=1_000 + number)
    assert producer.flush(30) == 0
    return topic


def look(
    session: SparkSession,
    topic: str,
    kafka: KafkaCluster,
    registry: SmallRegistry | None = None,
    asked: replays.ReplayRange = ALL,
    sample: int = 0,
) -> Looked:
    from services.pipeline.profiling.job import SparkLooking
    from services.pipeline.profiling.order import Profiling
    from services.pipeline.profiling.registry import RegistryAccess
    from services.pipeline.settings import PipelineSettings

    access = RegistryAccess(registry.url, "pipeline:pass") if registry else RegistryAccess()
    clusters = {"green": {"bootstrap.servers": kafka.bootstrap}}
    looking = SparkLooking(lambda: session, clusters, PipelineSettings(), access)
    spec = replays.ReplaySpec(ranges=[asked], profile=replays.ReplayToProfile(sample=sample))
    places = [replays.ReplayPlace(topic="fruit", cluster="green", upstream_topic=topic)]
    reports: list[replays.ReportReplayRequest] = []
    Profiling(replays.Replay(spec=spec, places=places), looking, reports.append, threading.Event()).run()
    assert reports[-1].state == replays.REPLAY_STATE_DONE, reports[-1].description
    [profile] = reports[-1].profiles
    return Looked(profile, reports)


def test_a_mixed_topic(spark: SparkSession, mixed: str, kafka_c1: KafkaCluster, registry: SmallRegistry) -> None:
    looked = look(spark, mixed, kafka_c1, registry)
    profile = looked.profile
    assert (profile.topic, profile.cluster, profile.records, profile.is_sample) == ("fruit", "green", RECORDS, False)
    assert (profile.first_time.ToMilliseconds(), profile.last_time.ToMilliseconds()) == (1_000, 1_000 + RECORDS - 1)
    each = RECORDS // 8
    assert dict(profile.formats) == {
        "json": 2 * each,
        "avro-schema-registry": each,
        "protobuf-schema-registry": each,
        "binary": 2 * each,
        "null": each,
        "text": each,
    }
    assert dict(profile.partition_records) == {0: RECORDS // 2, 1: RECORDS // 2}
    assert dict(profile.header_names) == {"trace": RECORDS // 3}
    assert (profile.null_keys, profile.null_values) == (RECORDS // 4, each)
    assert profile.top_key_share == pytest.approx(0.5)
    assert profile.distinct_keys == pytest.approx(1 + RECORDS // 4, rel=0.2)
    values = [made for number in range(RECORDS) if (made := value(number)) is not None]
    assert profile.values.total == sum(map(len, values))
    assert (profile.values.smallest, profile.values.largest) == (min(map(len, values)), 100)
    assert profile.headers.total == RECORDS // 3 * len("trace" + SECRET + "trace" + "1")
    fields: dict[str, Any] = {field.path: (dict(field.types), round(field.null_rate, 3)) for field in profile.fields}
    assert fields == {
        "name": ({"string": each, "null": each}, 0.667),
        "size": ({"integer": each}, 0.667),
        "tags": ({"array": each}, 0.667),
        "tags[]": ({"string": each}, 0.667),
        "wax": ({"null": each}, 1.0),
        "weight": ({"integer": each}, 0.667),
    }
    assert SECRET.encode() not in profile.SerializeToString()
    assert [len(report.partitions) for report in looked.reports] == [3, 3, 0]
    assert registry.asked.count(f"/schemas/ids/{AVRO}") <= 2, "once in each task"


def test_a_sample_without_a_registry_of_records_that_mostly_have_no_key(
    spark: SparkSession, mixed: str, kafka_c1: KafkaCluster
) -> None:
    first = replays.ReplayRange(topic="fruit", partition=0)
    profile = look(spark, mixed, kafka_c1, asked=first, sample=40).profile
    assert (profile.records, profile.is_sample) == (40, True)
    assert dict(profile.formats) == {"json": 10, "schema-registry": 20, "text": 10}
    assert profile.null_keys == 20
    assert profile.top_key_share == pytest.approx(1 / 40), "to have no key is not to have the most frequent one"

"""The recorded exchanges of the original ("Consumers: ..."), played against this sidecar.

Where the original answers, this sidecar answers the same; where it fails or hangs, the comment says what it did.
"""

from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.integration.sidecar.world import Json, Kafka, SidecarWorld, started

FIRST_RECORDS = [  # partition, key, value, headers
    (0, None, b"no key", [("X-Correlation-Id", b"AaH9TeYqco-bb0c2X_HJVA")]),
    (0, b"a", b"1", [("X-Correlation-Id", b"AaH9TeY0d76IJ5rg7gjzRQ")]),
    (1, b"alice", b"hello", [("X-Correlation-Id", b"AaH9TeTafyGsjiF6aXjWvQ")]),
    (
        1,
        b"bob",
        b"v",
        [
            ("authorization", b"Bearer not-a-token"),
            ("X-Traceability-Id", b"t-1"),
            ("X-Correlation-Id", b"c-1"),
            ("source", b"web"),
        ],
    ),
]


@pytest.fixture(scope="module")
def sidecar(kafka_c1: KafkaCluster) -> Iterator[SidecarWorld]:
    with started(kafka_c1.bootstrap, name="id", request_timeout_ms=1000) as world:
        yield world


def error(answer: httpx.Response) -> tuple[int, str, str]:
    body: Json = answer.json()
    assert (body["statusCode"], body["severity"]) == (answer.status_code, "ERROR")
    return answer.status_code, body["code"], body["message"]


def test_create(sidecar: SidecarWorld, group: str) -> None:
    def create(**body: object) -> httpx.Response:
        return sidecar.http.post(f"/consumers/{group}", json=body)

    named = {"name": "c1", "keyFormat": "STRING", "valueFormat": "STRING"}
    made = create(**named, autoOffsetReset="earliest", autoCommitEnable="false")
    assert (made.status_code, made.json()["instance_id"]) == (200, "c1")
    assert made.json()["base_uri"].endswith(f"/consumers/{group}/instances/c1")
    again = create(**named)
    assert error(again) == (400, "ERR12202", "CONSUMER_ALREADY_EXISTS")
    assert (
        again.json()["description"]
        == f"Consumer already exists with id ConsumerInstanceId{{group='{group}', instance='c1'}}"
    )
    generated = create()
    assert generated.json()["instance_id"].startswith("rest-consumer-id-")
    # id wins over name; dotted names; lower-case formats are ours (the original: 400)
    dotted = {"auto.offset.reset": "earliest", "fetch.min.bytes": 1, "consumer.request.timeout.ms": 2000}
    assert create(id="i", name="n", keyFormat="string", **dotted).json()["instance_id"] == "i"
    assert create(name="c4", responseMinBytes=1, requestWaitMs=2000).status_code == 200
    assert create(name="c3", format="STRING").status_code == 200  # the seed's member; the original: 500
    unknown_format = create(name="cx", keyFormat="XML", valueFormat="STRING")
    assert error(unknown_format) == (400, "ERR11004", "VALIDATOR_SCHEMA")
    assert unknown_format.json()["description"] == (
        "Schema Validation Error - /keyFormat: does not have a value in the enumeration "
        '["BINARY", "JSON", "AVRO", "JSONSCHEMA", "PROTOBUF", "STRING"]'
    )
    bad_reset = create(name="cy", autoOffsetReset="sometimes")
    assert error(bad_reset) == (400, "ERR12201", "CONSUMER_CONFIG_EXCEPTION")
    assert bad_reset.json()["description"] == (
        "Consumer configuration exception with message Invalid value sometimes for configuration auto.offset.reset: "
        "String must be one of: latest, earliest, none"
    )
    assert error(create(name="c5", bogus=1))[:2] == (400, "ERR11004")  # the original: 500
    assert error(sidecar.http.post(f"/consumers/{group}"))[:2] == (400, "ERR11014")  # the original: 500


def test_subscribe_read_commit_seek(sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str) -> None:
    def call(method: str, end: str, body: Json | None = None, **query: object) -> httpx.Response:
        parameters = {name: str(value) for name, value in query.items()}
        return sidecar.http.request(method, f"/consumers/{group}/instances/c1{end}", params=parameters, json=body)

    def at(partition: int, **members: object) -> Json:
        return {"topic": orders, "partition": partition, **members}

    kafka.write(
        orders,
        *(
            {"partition": partition, "key": key, "value": value, "headers": headers}
            for partition, key, value, headers in FIRST_RECORDS
        ),
    )
    members = {"name": "c1", "keyFormat": "STRING", "valueFormat": "STRING", "requestWaitMs": 10_000}
    assert sidecar.http.post(f"/consumers/{group}", json=members).status_code == 200
    assert error(call("GET", "/records"))[:2] == (400, "ERR12205")  # the original: no answer within 40 s
    assert call("GET", "/assignments").json() == {"partitions": []}
    assert call("GET", "/subscriptions").json() == {"topics": []}
    subscribed = call("POST", "/subscriptions", {"topics": [orders]})
    assert (subscribed.status_code, subscribed.content) == (204, b"")
    assert call("GET", "/subscriptions").json() == {"topics": [orders]}

    records: list[Json] = []
    while len(records) < len(FIRST_RECORDS):
        records += call("GET", "/records", timeout=3000, maxBytes=300_000).json()
    by_place = {(one["partition"], one["offset"]): one for one in records}
    keyless, alice, bob = by_place[0, 0], by_place[1, 0], by_place[1, 1]
    timestamp = keyless.pop("timestamp")
    assert timestamp > 0
    assert keyless == {
        "topic": orders,
        "value": "no key",
        "headers": {"X-Correlation-Id": "AaH9TeYqco-bb0c2X_HJVA"},
        "partition": 0,
        "offset": 0,
    }
    assert (alice["key"], alice["value"]) == ("alice", "hello")
    assert bob["headers"] == {
        "authorization": "Bearer not-a-token",
        "X-Correlation-Id": "c-1",
        "X-Traceability-Id": "t-1",
        "source": "web",
    }
    assert call("GET", "/records", timeout=100).json() == []
    assert call("GET", "/assignments").json() == {"partitions": [at(0), at(1)]}

    # the original answers `[]` to commits; here they say what was committed
    committed = call("POST", "/offsets")
    assert (committed.status_code, committed.json()) == (
        200,
        [at(0, consumed=1, committed=2), at(1, consumed=1, committed=2)],
    )
    assert call("PUT", "/offsets", {"partitions": [at(0), at(1)]}).json() == {
        "offsets": [at(0, offset=2, metadata=""), at(1, offset=2, metadata="")]
    }
    assert call("PUT", "/offsets", {"offsets": [at(0)]}).status_code == 200  # the original: 500
    assert call("POST", "/offsets", {"offsets": [at(0, offset=0, metadata="m")]}).status_code == 200
    assert call("PUT", "/offsets", {"partitions": [at(0)]}).json() == {"offsets": [at(0, offset=1, metadata="m")]}
    assert call("POST", "/offsets", None, **{"async": "true"}).status_code == 200
    unknown = call("POST", "/offsets", {"offsets": [{"topic": "nope", "partition": 0, "offset": 1}]})
    assert error(unknown)[:2] == (400, "ERR12207")  # the original: no answer within 40 s

    # the original: 500 without timestamps, and for any timestamp
    assert call("POST", "/positions", {"offsets": [at(0, offset=1)]}).status_code == 204
    assert call("POST", "/positions", {"offsets": [at(0, offset=1)], "timestamps": []}).status_code == 204
    assert [one["offset"] for one in call("GET", "/records", timeout=10_000).json()] == [1]
    by_time = {"offsets": [], "timestamps": [at(0, timestamp="2023-01-01T00:00:00Z")]}
    assert call("POST", "/positions", by_time).status_code == 204
    assert call("POST", "/positions/first", {"partitions": [at(0), at(1)]}).status_code == 204
    some = call("GET", "/records", timeout=10_000, maxBytes=6).json()
    assert [one["offset"] for one in some] == [0]
    assert call("POST", "/positions/last", {"partitions": [at(0), at(1)]}).status_code == 204
    assert call("GET", "/records", timeout=100).json() == []
    # the original: 500
    assert error(call("POST", "/positions/first", {"partitions": [at(9)]}))[:2] == (409, "ERR12904")
    assert error(call("POST", "/assignments", {"partitions": [at(0)]}))[:2] == (409, "ERR12904")
    assert call("DELETE", "/subscriptions").status_code == 204
    assert call("POST", "/assignments", {"partitions": [at(0)]}).status_code == 204
    assert call("GET", "/assignments").json() == {"partitions": [at(0)]}
    assert error(call("POST", "/subscriptions", {"topics": [orders]}))[:2] == (409, "ERR12904")  # the original: 500
    assert call("POST", "/subscriptions", {}).status_code == 204

    bad_timeout = call("GET", "/records", timeout="abc")
    assert error(bad_timeout) == (400, "ERR11004", "VALIDATOR_SCHEMA")
    assert bad_timeout.json()["description"] == "Schema Validation Error - /timeout: string found, integer expected"
    other = sidecar.http.get("/consumers/other/instances/c1/records")
    assert error(other) == (404, "ERR12200", "CONSUMER_INSTANCE_NOT_FOUND")
    assert other.json()["description"] == "Consumer instance not found for group other and instance c1"
    assert (call("DELETE", "").status_code, call("DELETE", "").status_code) == (204, 404)


@pytest.mark.parametrize(
    ("formats", "key", "value", "shown"),
    [
        ("BINARY", b"k\x00", b"\x00\xff", ("awA=", "AP8=")),
        ("JSON", b'{"k":1}', b'{"a":[1,2.5,null,"x"]}', ({"k": 1}, {"a": [1, 2.5, None, "x"]})),
        ("STRING", b"alice", b"hello", ("alice", "hello")),
    ],
)
def test_the_format_is_the_instances_own(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str, formats: str, key: bytes, value: bytes, shown: object
) -> None:
    """The original answers only instances of the one format that its configuration has."""
    kafka.write(orders, {"key": key, "value": value, "partition": 0})
    instance = sidecar.create(group, "f", keyFormat=formats, valueFormat=formats)
    instance.assign({"topic": orders, "partition": 0})
    (record,) = instance.read_all(1)
    assert (record["key"], record["value"]) == shown

"""The face for clients of REST v2: the documented examples of Strimzi's bridge and of Karapace, on a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest
import yaml

from services.sidecar.api.contract import REST_V2
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.schema_registry import SchemaRegistry
from tests.fixtures.token_issuer import AUDIENCE, TokenIssuer
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar import conformance
from tests.integration.sidecar.world import WITHIN_SECONDS, Json, Kafka, started

V2 = "application/vnd.kafka.v2+json"


def of(format_: str) -> str:
    """The media type of records in a format."""
    return f"application/vnd.kafka.{format_}.v2+json"


def face(bootstrap: str, dialect: str, **settings: object) -> Iterator[httpx.Client]:
    """A sidecar's second face."""
    given = {"rest_v2_listen": "127.0.0.1:0", "rest_v2_dialect": dialect, "max_instances": 100, **settings}
    with started(bootstrap, **given) as world:
        address = f"http://127.0.0.1:{world.sidecar.rest_v2_port}"
        hooks: dict[str, list[Callable[..., Any]]] = {"response": [partial(conformance.check, contract=REST_V2)]}
        with httpx.Client(base_url=address, timeout=WITHIN_SECONDS, event_hooks=hooks) as client:
            yield client


@pytest.fixture(scope="module")
def bridge(kafka_c1: KafkaCluster) -> Iterator[httpx.Client]:
    yield from face(kafka_c1.bootstrap, "strimzi")


@pytest.fixture(scope="module")
def karapace(kafka_c1: KafkaCluster, schema_registry: SchemaRegistry) -> Iterator[httpx.Client]:
    registry = {"schema_registry_url": schema_registry.url, "schema_registry_timeout_ms": 30_000}
    yield from face(kafka_c1.bootstrap, "confluent", **registry)


def post(client: httpx.Client, path: str, body: Json | None = None, media_type: str = V2) -> httpx.Response:
    content: Json = {} if body is None else {"content": json.dumps(body)}
    return client.post(path, headers={"Content-Type": media_type} if body is not None else {}, **content)


def read(client: httpx.Client, uri: str, format_: str, count: int) -> list[Json]:
    """As a client that asks in a loop."""
    found: list[Json] = []

    def more() -> bool:
        answer = client.get(f"{uri}/records", headers={"Accept": of(format_)}, params={"timeout": 1000})
        assert (answer.status_code, answer.headers["content-type"]) == (200, of(format_)), answer.text
        found.extend(answer.json())
        return len(found) >= count

    wait_until(more, f"{count} records come")
    return found


def error(answer: httpx.Response) -> tuple[int, int]:
    assert answer.headers["content-type"] == V2
    assert answer.json().keys() == {"error_code", "message"}
    return answer.status_code, answer.json()["error_code"]


def test_the_quickstart_of_strimzis_bridge(bridge: httpx.Client, kafka: Kafka, topic: str, group: str) -> None:
    kafka.create(topic, 3)
    records = [
        {"key": "my-key", "value": "sales-lead-0001"},
        {"value": "sales-lead-0002", "partition": 2},
        {"value": "sales-lead-0003"},
    ]
    produced = post(bridge, f"/topics/{topic}", {"records": records}, of("json"))
    assert (produced.status_code, produced.headers["content-type"]) == (200, V2)
    offsets = produced.json()["offsets"]
    assert produced.json().keys() == {"offsets"}
    assert [sorted(one) for one in offsets] == [["offset", "partition"]] * 3
    assert offsets[1] == {"partition": 2, "offset": 0}
    to_partition = post(bridge, f"/topics/{topic}/partitions/1", {"records": [{"value": "more"}]}, of("json"))
    assert to_partition.json()["offsets"][0]["partition"] == 1
    assert topic in bridge.get("/topics").json()
    described = bridge.get(f"/topics/{topic}").json()
    assert (described["name"], described["configs"]["cleanup.policy"]) == (topic, "delete")
    assert described["partitions"] == bridge.get(f"/topics/{topic}/partitions").json()
    one = bridge.get(f"/topics/{topic}/partitions/0").json()
    leader = one["leader"]
    assert one == {"partition": 0, "leader": leader, "replicas": [{"broker": leader, "leader": True, "in_sync": True}]}
    assert bridge.get(f"/topics/{topic}/partitions/2/offsets").json()["beginning_offset"] == 0
    wanted = {
        "name": "bridge-quickstart-consumer",
        "auto.offset.reset": "earliest",
        "format": "json",
        "enable.auto.commit": False,
        "fetch.min.bytes": 512,
        "consumer.request.timeout.ms": 30000,
    }
    created = post(bridge, f"/consumers/{group}", wanted)
    assert created.status_code == 200, created.text
    assert created.json()["instance_id"] == "bridge-quickstart-consumer"
    uri = created.json()["base_uri"]
    assert uri == f"{bridge.base_url}/consumers/{group}/instances/bridge-quickstart-consumer".replace("//c", "/c")
    subscribed = post(bridge, f"{uri}/subscription", {"topics": [topic]})
    assert (subscribed.status_code, subscribed.content) == (204, b"")
    found = read(bridge, uri, "json", 4)
    by_value = {one["value"]: one for one in found}
    assert by_value["sales-lead-0001"]["key"] == "my-key"
    assert by_value["sales-lead-0003"]["key"] is None
    assert (by_value["sales-lead-0002"]["partition"], by_value["sales-lead-0002"]["offset"]) == (2, 0)
    reading = bridge.get(f"{uri}/subscription").json()
    assert reading == {"topics": [topic], "partitions": [{topic: [0, 1, 2]}]}
    assert bridge.post(f"{uri}/offsets").status_code == 204
    of_2 = [one["value"] for one in found if one["partition"] == 2]  # the record without a key goes anywhere
    assert of_2[0] == "sales-lead-0002"
    assert kafka.committed(group, topic, 2) == len(of_2)
    place = {"topic": topic, "partition": 2}
    assert post(bridge, f"{uri}/positions", {"offsets": [{**place, "offset": 0}]}).status_code == 204
    assert [one["value"] for one in read(bridge, uri, "json", len(of_2))] == of_2
    assert post(bridge, f"{uri}/positions/end", {"partitions": [place]}).status_code == 204
    assert post(bridge, f"{uri}/positions/beginning", {"partitions": [place]}).status_code == 204
    assert [one["value"] for one in read(bridge, uri, "json", len(of_2))] == of_2
    assert bridge.delete(uri).status_code == 204
    assert error(bridge.delete(uri)) == (404, 404)


def test_the_examples_of_karapace(karapace: httpx.Client, kafka: Kafka, topic: str, group: str) -> None:
    kafka.create(topic, 1)
    assert topic in karapace.get("/topics").json()
    assert karapace.get(f"/topics/{topic}").json()["name"] == topic
    fields = [{"name": "name", "type": "string"}]
    schema = json.dumps({"namespace": "example.avro", "type": "record", "name": "simple", "fields": fields})
    body = {"value_schema": schema, "records": [{"value": {"name": "name0"}}]}
    produced = post(karapace, f"/topics/{topic}", body, of("avro"))
    assert produced.status_code == 200, produced.text
    schema_id = produced.json()["value_schema_id"]
    offsets = [{"partition": 0, "offset": 0}]
    assert produced.json() == {"offsets": offsets, "key_schema_id": None, "value_schema_id": schema_id}
    wanted = {"name": "my_consumer", "format": "avro", "auto.offset.reset": "earliest"}
    created = karapace.post(
        f"/consumers/{group}", headers={"Content-Type": V2, "Accept": V2}, content=json.dumps(wanted)
    )
    assert created.json()["instance_id"] == "my_consumer"
    uri = f"/consumers/{group}/instances/my_consumer"
    assert created.json()["base_uri"].endswith(uri)
    assert post(karapace, f"{uri}/subscription", {"topics": [topic]}).status_code == 204
    (record,) = read(karapace, uri, "avro", 1)
    assert record.pop("timestamp") > 0
    assert record == {"topic": topic, "key": None, "value": {"name": "name0"}, "partition": 0, "offset": 0}
    assert karapace.get(f"{uri}/assignments").json() == {"partitions": [{"topic": topic, "partition": 0}]}
    assert post(karapace, f"{uri}/offsets", {}).status_code == 204
    partitions = json.dumps({"partitions": [{"topic": topic, "partition": 0}]})
    answer = karapace.request("GET", f"{uri}/offsets", headers={"Content-Type": V2}, content=partitions)
    assert answer.json() == {"offsets": [{"topic": topic, "partition": 0, "offset": 1, "metadata": ""}]}
    assert karapace.delete(uri, headers={"Accept": V2}).status_code == 204


@pytest.mark.parametrize(("format_", "value"), [("json", {"n": 1}), ("binary", "/w=="), ("text", "a text")])
def test_records_are_those_of_the_other_face(
    bridge: httpx.Client, kafka: Kafka, topic: str, group: str, format_: str, value: object
) -> None:
    kafka.create(topic, 1)
    header = {"key": "source", "value": "d2Vi"}
    sent = {"records": [{"value": value, "headers": [header]}]}
    assert post(bridge, f"/topics/{topic}", sent, of(format_)).status_code == 200
    (kept,) = kafka.read(topic, 1)
    assert kept.value == {"json": b'{"n":1}', "binary": b"\xff", "text": b"a text"}[format_]
    assert ("source", b"web") in kept.headers
    wanted = {"name": "c", "format": format_, "auto.offset.reset": "earliest"}
    uri = post(bridge, f"/consumers/{group}", wanted).json()["base_uri"]
    post(bridge, f"{uri}/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    (record,) = read(bridge, uri, format_, 1)
    assert record["value"] == value
    assert header in record["headers"]


def test_a_commit_names_the_offset_that_the_clients_of_each_product_name(
    bridge: httpx.Client, karapace: httpx.Client, kafka: Kafka, topic: str, group: str
) -> None:
    kafka.create(topic, 1)
    for client, name, committed in ((bridge, f"{group}-s", 2), (karapace, f"{group}-k", 3)):
        uri = post(client, f"/consumers/{name}", {"name": "c"}).json()["base_uri"]
        place = {"topic": topic, "partition": 0}
        post(client, f"{uri}/assignments", {"partitions": [place]})
        assert post(client, f"{uri}/offsets", {"offsets": [{**place, "offset": 2}]}).status_code == 204
        assert kafka.committed(name, topic, 0) == committed


def refusals(client: httpx.Client, topic: str, group: str) -> list[tuple[int, int]]:
    """How it answers requests that cannot be served."""
    post(client, f"/consumers/{group}", {"name": "there", "format": "json"})
    there, gone = f"/consumers/{group}/instances/there", f"/consumers/{group}/instances/gone"
    post(client, f"{there}/subscription", {"topics": [topic]})
    record: Json = {"records": [{"value": "x"}]}
    return [
        error(answer)
        for answer in (
            post(client, f"/topics/{topic}-not", record, of("json")),
            client.get(f"/topics/{topic}-not"),
            client.get(f"/topics/{topic}/partitions/77"),
            post(client, f"/topics/{topic}", record, "text/plain"),
            post(client, f"/topics/{topic}", record, of("xml")),
            post(client, f"/topics/{topic}", {"records": [{"value": "no base64"}]}, of("binary")),
            post(client, f"/topics/{topic}", {"oops": 1}, of("json")),
            post(client, f"/topics/{topic}", {"records": [{"key": 1}]}, of("avro")),
            post(client, f"/topics/{topic}", {"records": [{"value": 1}]}, of("avro")),
            post(client, f"/consumers/{group}", {"name": "there", "format": "json"}),
            post(client, f"/consumers/{group}", {"name": "new", "format": "xml"}),
            client.get(f"{gone}/records"),
            client.get(f"{there}/records", headers={"Accept": of("binary")}),
            post(client, f"{there}/assignments", {"partitions": [{"topic": topic, "partition": 0}]}),
            post(client, f"{there}/subscription", {"topics": [topic], "topic_pattern": "x"}),
            client.get("/nothing/here"),
        )
    ]


CODES = [
    (404, 40401), (404, 40401), (404, 40402), (415, 415), (415, 415), (422, 42205), (422, 422), (422, 42201),
    (422, 42202), (409, 40902), (422, 422), (404, 40403), (406, 40601), (409, 40903), (409, 40903), (404, 404),
]  # fmt: skip


def test_errors_have_the_codes_of_each_product(
    bridge: httpx.Client, karapace: httpx.Client, kafka: Kafka, topic: str, group: str
) -> None:
    kafka.create(topic, 1)
    assert refusals(karapace, topic, group) == CODES
    assert refusals(bridge, topic, f"{group}-s") == [(status, status) for status, _ in CODES]


def test_its_contract_is_served(karapace: httpx.Client) -> None:
    document = yaml.safe_load(karapace.get("/spec.yaml").text)
    assert document["info"]["title"] == "Kafka Mesh sidecar, REST v2"


def test_tokens_and_their_topics_hold_here_too(kafka: Kafka, topic: str, group: str) -> None:
    kafka.create(topic, 1)
    kafka.create(f"{topic}.theirs", 1)
    with TokenIssuer().running() as issuer:
        trusted: dict[str, Any] = {"jwks_url": issuer.jwks_url, "issuer": issuer.url, "audience": AUDIENCE}
        for client in face(kafka.bootstrap, "confluent", token_issuers=[trusted]):
            sent: Json = {"records": [{"value": "x"}]}
            assert error(post(client, f"/topics/{topic}", sent, of("json"))) == (401, 401)
            client.headers.update(issuer.bearer(f"kafka:w:{topic}"))
            for name, status in ((topic, 200), (f"{topic}.theirs", 403)):
                assert post(client, f"/topics/{name}", sent, of("json")).status_code == status
                assert post(client, f"/topics/{name}/partitions/0", sent, of("json")).status_code == status
                assert client.get(f"/topics/{name}").status_code == status
            assert client.get("/topics").json() == [topic]
            client.headers.update(issuer.bearer(f"kafka:r:{topic}"))
            assert error(post(client, f"/topics/{topic}", sent, of("json"))) == (403, 403)
            assert error(post(client, f"/topics/{topic}/partitions/0", sent, of("json"))) == (403, 403)
            uri = post(client, f"/consumers/{group}", {"name": "c", "format": "json"}).json()["base_uri"]
            assert error(post(client, f"{uri}/subscription", {"topics": [f"{topic}.theirs"]})) == (403, 403)
            assert post(client, f"{uri}/subscription", {"topics": [topic]}).status_code == 204

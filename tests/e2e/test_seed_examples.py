"""The examples of the specification that the sidecar is made after, played with curl as they stand there.

The sidecar is configured by the original's own files, serves HTTPS with a certificate that it makes for itself, and
works with a real Kafka and a real schema registry. Only the address and the topic differ from the text.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from services.sidecar.original.folder import SHIPPED
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.schema_registry import SchemaRegistry
from tests.fixtures.toolchains import need
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import WITHIN_SECONDS, Kafka, started

HOOKS = [f"com.networknt.mesh.kafka.{part}StartupHook" for part in ("Producer", "ActiveConsumer")]
BASE64_VALUES = """\
curl -k --location --request POST 'https://localhost:8443/producers/test6' \\
--header 'Content-Type: application/json' \\
--data-raw '{"records":[{"key":"alice","value":"YWJj"},{"key":"john","value":"ZGVm"},{"key":"alex","value":"eHl6"}]}'
"""
BASE64_KEYS = """\
curl -k --location --request POST 'https://localhost:8443/producers/test6' \\
--header 'Content-Type: application/json' \\
--data-raw '{"records":[{"key":"YWxpY2U=","value":"abc"},{"key":"am9obg==","value":"def"},{"key":"YWxleA==","value":"xyz"}]}'
"""  # noqa: E501
PEOPLE = [(b"alice", b"abc"), (b"john", b"def"), (b"alex", b"xyz")]
"""What both of them write."""
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "count", "type": "int"}]}
COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}}
SCHEMAS = {2: json.dumps(ORDER), 3: json.dumps(COUNT), 4: 'syntax = "proto3"; message Order { int32 count = 1; }'}
VALUES: dict[int, Any] = {
    0: "YWJj",
    1: {"any": [1, None]},
    2: {"count": 2},
    3: {"count": 3},
    4: {"count": 4},
    5: "text",
}
"""A value of each format, by the format's number."""
NAMES = ["binary", "json", "avro", "jsonschema", "protobuf", "string"]
SIDES = ("producer", "consumer")
STRING_VALUES = {f"kafka-{side}.valueFormat": "string" for side in SIDES}


@dataclass(frozen=True)
class Shell:
    """Where the examples are typed."""

    port: int
    topic: str

    def play(self, line: str) -> tuple[int, Any]:
        """Status and body of what a curl line of the text gets."""
        placed = line.replace("localhost:8443", f"localhost:{self.port}").replace("test6", self.topic)
        silent = placed.replace("curl -k", "curl -k -sS --max-time 30 -w '\\n%{http_code}'", 1)
        done = subprocess.run(
            ["bash", "-c", silent], check=False, capture_output=True, text=True, timeout=WITHIN_SECONDS + 10
        )
        assert done.returncode == 0, done.stderr
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body) if body.startswith(("{", "[")) else body

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """An operation of the text's OpenAPI document."""
        line = f"curl -k --request {method} 'https://localhost:8443{path}'"
        if body is not None:
            line += f" --header 'Content-Type: application/json' --data-raw '{json.dumps(body)}'"
        return self.play(line)


Start = Callable[..., Shell]


@pytest.fixture
def kafka(kafka_c1: KafkaCluster) -> Kafka:
    return Kafka(kafka_c1.bootstrap)


@pytest.fixture
def start(kafka: Kafka, topic: str, tmp_path: Path) -> Iterator[Start]:
    """Starts the sidecar by the original's files: `files` is what an example changes in their lines, `values` what it
    has in values.yml.
    """
    need("curl")
    kafka.create(topic, 1)
    with contextlib.ExitStack() as running:

        def start(files: dict[str, str] | None = None, **values: Any) -> Shell:
            folder = tmp_path / "config"
            folder.mkdir()
            for shipped in SHIPPED.glob("*.yml"):
                text = shipped.read_text(encoding="utf-8")
                for line, instead in (files or {}).items():
                    text = text.replace(line, instead)
                (folder / shipped.name).write_text(text, encoding="utf-8")
            ours = {"service.com.networknt.server.StartupHookProvider": HOOKS, "security.enableVerifyJwt": False}
            plain = {f"kafka-{side}.security.protocol": "PLAINTEXT" for side in ("producer", "consumer")}
            waiting = {"kafka-consumer.requestTimeoutMs": 20_000}  # for a group on a busy machine
            given = {**ours, **plain, **waiting, **values}
            (folder / "values.yml").write_text(yaml.safe_dump(given), encoding="utf-8")
            world = running.enter_context(
                started(
                    kafka.bootstrap,
                    original_config_dir=folder,
                    tls=True,
                    state_dir=tmp_path / "state",
                    audit_file=tmp_path / "log" / "sidecar-audit.log",
                    request_timeout_ms=20_000,
                )
            )
            return Shell(world.sidecar.port, topic)

        yield start


def read(shell: Shell, group: str, **members: object) -> list[tuple[Any, Any]]:
    """Keys and values as a consumer gets them; in the formats of kafka-consumer.yml, unless it says otherwise."""
    status, made = shell.call("POST", f"/consumers/{group}", {"autoOffsetReset": "earliest", **members})
    assert status == 200, made
    path = f"/consumers/{group}/instances/{made['instance_id']}"
    assert shell.call("POST", f"{path}/subscriptions", {"topics": [shell.topic]}) == (204, "")
    status, records = shell.call("GET", f"{path}/records?timeout=20000")
    assert status == 200, records
    assert shell.call("DELETE", path) == (204, "")
    return [(one.get("key"), one["value"]) for one in records]


def test_base64_values_by_the_formats_in_the_files(start: Start, kafka: Kafka, group: str) -> None:
    formats = {
        "${kafka-producer.keyFormat:jsonschema}": "${kafka-producer.keyFormat:string}",
        "${kafka-producer.valueFormat:jsonschema}": "${kafka-producer.valueFormat:binary}",
        "${kafka-consumer.keyFormat:jsonschema}": "${kafka-consumer.keyFormat:string}",
        "${kafka-consumer.valueFormat:jsonschema}": "${kafka-consumer.valueFormat:binary}",
    }
    shell = start(formats)
    status, answer = shell.play(BASE64_VALUES)
    assert (status, len(answer["offsets"]), answer["requestStatus"]) == (200, 3, "OK")
    assert [(record.key, record.value) for record in kafka.read(shell.topic, 3)] == PEOPLE
    assert read(shell, group) == [("alice", "YWJj"), ("john", "ZGVm"), ("alex", "eHl6")]


def test_base64_keys_by_the_formats_in_values_yml(start: Start, kafka: Kafka, group: str) -> None:
    shell = start(**{f"kafka-{side}.keyFormat": "binary" for side in SIDES}, **STRING_VALUES)
    status, answer = shell.play(BASE64_KEYS)
    assert (status, len(answer["offsets"])) == (200, 3)
    assert [(record.key, record.value) for record in kafka.read(shell.topic, 3)] == PEOPLE
    assert read(shell, group) == [("YWxpY2U=", "abc"), ("am9obg==", "def"), ("YWxleA==", "xyz")]


def test_each_format_by_its_number_and_by_its_name(start: Start, schema_registry: SchemaRegistry, group: str) -> None:
    shell = start(**{f"kafka-{side}.schema.registry.url": schema_registry.url for side in SIDES})
    for number, value in VALUES.items():
        request: dict[str, Any] = {"keyFormat": 5, "valueFormat": number, "records": [{"key": "k", "value": value}]}
        if number in SCHEMAS:
            request["valueSchema"] = SCHEMAS[number]
        before = time.time()
        status, answer = shell.call("POST", "/producers/test6", request)
        assert status == 200, answer
        assert ("value_schema_id" in answer) == (number in SCHEMAS)
        [written] = answer["offsets"]
        name = f"reads-{number}"
        status, made = shell.call(
            "POST", f"/consumers/{group}", {"name": name, "valueFormat": NAMES[number], "keyFormat": 5}
        )
        assert status == 200, made
        path = f"/consumers/{group}/instances/{name}"
        place = {"topic": shell.topic, "partition": 0}
        assert shell.call("POST", f"{path}/assignments", {"partitions": [place]}) == (204, "")
        assert shell.call("POST", f"{path}/positions", {"offsets": [{**place, "offset": written["offset"]}]})[0] == 204
        status, [record] = shell.call("GET", f"{path}/records?timeout=20000")
        assert (status, record["key"], record["value"]) == (200, "k", value)
        assert record["timestamp"] >= int(before * 1000)


def test_the_operations_of_its_document_one_after_the_other(start: Start, group: str) -> None:
    """Each operation with the members that its document names, in an order that a backend would take."""
    shell = start(**{f"kafka-{side}.keyFormat": "string" for side in SIDES}, **STRING_VALUES)
    place = {"topic": shell.topic, "partition": 0}
    records = [{"key": "alice", "value": str(number)} for number in range(4)]
    assert shell.call("POST", "/producers/test6", {"keyFormat": 5, "valueFormat": 5, "records": records})[0] == 200

    asked = {
        "id": "c1",
        "name": "other",
        "format": "string",
        "autoOffsetReset": "earliest",
        "autoCommitEnable": "false",
    }
    status, made = shell.call("POST", f"/consumers/{group}", {**asked, "responseMinBytes": -1, "requestWaitMs": 20_000})
    assert (status, made["instanceId"]) == (200, "c1")
    assert made["baseUri"].endswith(f"/consumers/{group}/instances/c1")
    path = f"/consumers/{group}/instances/c1"

    assert shell.call("POST", f"{path}/subscriptions", {"topic_pattern": f"{shell.topic}.*"})[0] == 204
    assert shell.call("DELETE", f"{path}/subscriptions")[0] == 204
    assert shell.call("POST", f"{path}/subscriptions", {"topics": [shell.topic]})[0] == 204
    assert shell.call("GET", f"{path}/subscriptions") == (200, {"topics": [shell.topic]})
    status, found = shell.call("GET", f"{path}/records?timeout=20000&max_bytes=100000&format=string")
    assert (status, [one["value"] for one in found]) == (200, ["0", "1", "2", "3"])
    assert shell.call("GET", f"{path}/assignments") == (200, {"partitions": [place]})

    commit = {"offsets": [{**place, "offset": 1, "metadata": "half"}]}
    assert shell.call("POST", f"{path}/offsets", commit)[0] == 200
    status, committed = shell.call("PUT", f"{path}/offsets", {"offsets": [place]})
    assert (status, committed) == (200, {"offsets": [{**place, "offset": 2, "metadata": "half"}]})

    def next_value() -> str:
        status, found = shell.call("GET", f"{path}/records?max_bytes=1")
        assert status == 200, found
        return str(found[0]["value"])

    times = [{**place, "timestamp": "2020-01-01T00:00:00Z", "metadata": ""}]
    assert shell.call("POST", f"{path}/positions", {"offsets": [{**place, "offset": 2}], "timestamps": []})[0] == 204
    assert next_value() == "2"
    assert shell.call("POST", f"{path}/positions", {"timestamps": times})[0] == 204
    assert next_value() == "0"
    assert shell.call("POST", f"{path}/positions/first", {"partitions": [place]})[0] == 204
    assert next_value() == "0"
    assert shell.call("POST", f"{path}/positions/last", {"partitions": [place]})[0] == 204
    assert shell.call("GET", f"{path}/records?timeout=100") == (200, [])

    assert shell.call("DELETE", f"{path}/subscriptions")[0] == 204
    assert shell.call("POST", f"{path}/assignments", {"partitions": [place]})[0] == 204
    assert shell.call("DELETE", path) == (204, "")
    status, gone = shell.call("GET", f"{path}/records")
    assert (status, gone["statusCode"], gone["code"]) == (404, 404, "ERR12200")


def test_health_asks_the_backend_as_health_yml_says(start: Start) -> None:
    status = 200

    class Backend(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Backend) as backend:
        Thread(target=backend.serve_forever, daemon=True).start()
        shell = start(
            {"${health.downstreamEnabled:false}": "${health.downstreamEnabled:true}"},
            **{"health.downstreamHost": f"http://localhost:{backend.server_port}", **STRING_VALUES},
        )
        path = "/health/com.networknt.kafka-sidecar-1.0.0"
        wait_until(lambda: shell.call("GET", path) == (200, "OK"), "health says that the backend is well")
        status = 500
        wait_until(lambda: shell.call("GET", path) == (400, "ERROR"), "health says that the backend is sick")
        backend.shutdown()

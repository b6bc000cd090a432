"""What the original was asked and answered, played against this sidecar: same status, code, sentence, and members.

`recorded/*.yaml` holds the exchanges. Where this sidecar answers better, the exchange says how, and why. Requests of a
file build on each other, so a file is one test.
"""

import json
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from mesh.json_types import type_name
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.schema_registry import SchemaRegistry
from tests.integration.sidecar.world import Kafka, SidecarWorld, started

FILES = ["producing", "schemas", "consuming", "formats", "admin"]
"""In this order: what is produced in the first two is read in those after."""
SAME_SENTENCE = {"ERR10048", "ERR11004", "ERR12200", "ERR12201", "ERR12202"}
"""Of other codes, sentences hold reasons in the words of Java's libraries."""

NULL_IS_ABSENT = {"key", "value"}
"""Of records; which of them a read gives first is Kafka's choice."""
READ_ON_S = 10.0


def recorded(name: str, prefix: str) -> list[dict[str, Any]]:
    text = (Path(__file__).parent / "recorded" / f"{name}.yaml").read_text(encoding="utf-8")
    exchanges: list[dict[str, Any]] = yaml.safe_load(text.replace("PREFIX", prefix))
    return exchanges


@pytest.fixture(scope="module")
def prefix() -> str:
    return f"recorded-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def sidecar(kafka_c1: KafkaCluster, schema_registry: SchemaRegistry, prefix: str) -> Iterator[SidecarWorld]:
    kafka = Kafka(kafka_c1.bootstrap)
    for end in ("str", "bin", "json", "avro", "js", "proto"):
        kafka.create(f"{prefix}-{end}")
    with started(
        kafka_c1.bootstrap, schema_registry_url=schema_registry.url, key_format="string", value_format="jsonschema"
    ) as world:
        yield world


@pytest.mark.parametrize("name", FILES)
def test_what_the_original_answered_is_answered_or_bettered(sidecar: SidecarWorld, prefix: str, name: str) -> None:
    differences: list[str] = []
    schema_ids: dict[int, int] = {}
    for exchange in recorded(name, prefix):
        answer = play(sidecar.http, with_our_ids(exchange, schema_ids))
        learn_ids(exchange, answer, schema_ids)
        if reads_records(exchange):
            answer = read_on(sidecar.http, exchange, answer)
        difference = (
            difference_to_ours(answer, exchange["ours"]) if "ours" in exchange else difference_to(answer, exchange)
        )
        if difference:
            differences.append(f"{exchange['name']}: {difference}\n    {answer.status_code} {answer.text[:300]}")
    assert not differences, "\n".join(differences)


def play(http: httpx.Client, exchange: dict[str, Any]) -> httpx.Response:
    method, path = exchange["send"].split(" ", 1)
    body = exchange.get("body")
    headers = {"Content-Type": "application/json"} if body is not None else {}
    return http.request(method, path, content=body, headers=headers | exchange.get("headers", {}))


def with_our_ids(exchange: dict[str, Any], schema_ids: dict[int, int]) -> dict[str, Any]:
    """The original's registry was empty, so it counted its schemas from 1."""

    def ours(named: re.Match[str]) -> str:
        return f"{named[1]}{schema_ids.get(int(named[2]), int(named[2]))}"

    named_id = r'("value(?:SchemaId|_schema_id)": )(\d+)'
    return exchange | ({"body": re.sub(named_id, ours, exchange["body"])} if "body" in exchange else {})


def learn_ids(exchange: dict[str, Any], answer: httpx.Response, schema_ids: dict[int, int]) -> None:
    """Which id the registry has here for a schema that the original's had another one for."""
    if answer.is_success and "value_schema_id" in exchange.get("answer", ""):
        schema_ids[json.loads(exchange["answer"])["value_schema_id"]] = answer.json().get("value_schema_id")


def reads_records(exchange: dict[str, Any]) -> bool:
    return exchange["send"].startswith("GET") and "/records" in exchange["send"] and exchange["answered"] == 200


def read_on(http: httpx.Client, exchange: dict[str, Any], answer: httpx.Response) -> httpx.Response:
    """Until as many are read as the original gave, or `all`, and the first answer with some: on a busy machine one
    partition comes before another one, or none in time, and what is left would come with the next exchange, which
    finds none."""
    wanted, until = len(json.loads(exchange["answer"])), time.monotonic() + READ_ON_S
    came = read = len(answer.json()) if answer.is_success else wanted
    while (read < wanted or (exchange.get("all") and came)) and time.monotonic() < until:
        further = play(http, exchange)
        answer = answer if read else further
        came = len(further.json())
        read += came
    return answer


def difference_to_ours(answer: httpx.Response, ours: dict[str, Any]) -> str | None:
    """What is not as the exchange says that this sidecar betters it."""
    assert ours["because"]
    found = {
        "status": answer.status_code,
        "code": answer.json()["code"] if "code" in ours and answer.is_client_error else None,
    }
    expected = {"status": ours["status"], "code": ours.get("code")}
    return None if found == expected else f"expected {expected}"


def difference_to(answer: httpx.Response, exchange: dict[str, Any]) -> str | None:
    if answer.status_code != exchange["answered"]:
        return f"the original answered {exchange['answered']}"
    recorded_text = exchange.get("answer", "")
    if not recorded_text.startswith(("{", "[")):
        return None if answer.text == recorded_text or not recorded_text else f"the original answered {recorded_text}"
    original, own = json.loads(recorded_text), answer.json()
    if answer.status_code >= 400 and (code := original["code"]) in SAME_SENTENCE:
        same = (own["code"], own["message"], own["description"]) == (code, original["message"], original["description"])
        return None if same else f"the original answered {recorded_text}"
    if reads_records(exchange) and bool(original) != bool(own):
        return f"the original answered {len(original)} records"
    return missing(original, own, "")


def missing(original: Any, own: Any, pointer: str) -> str | None:
    """What the original has and ours has not, by members and their types; ours may have more."""
    if isinstance(original, dict) and isinstance(own, dict):
        lacks = [name for name in original if name not in own and name not in NULL_IS_ABSENT]
        if lacks:
            return f"{pointer} lacks {lacks}"
        return next(
            (found for name in original if (found := missing(original[name], own.get(name), f"{pointer}/{name}"))), None
        )
    if isinstance(original, list) and isinstance(own, list):
        return missing(together(original), together(own), f"{pointer}/-")
    if original is not None and own is not None and type_name(original) != type_name(own):
        return f"{pointer}: {type_name(own)} instead of {type_name(original)}"
    return None


def together(items: list[Any]) -> Any:
    """One that has the members of all: records differ in theirs, and partitions are read in any order."""
    if items and all(isinstance(one, dict) for one in items):
        return {name: value for one in items for name, value in one.items()}
    return items[0] if items else None

"""Every answer that the contract promises is given: each status, with each of its codes, of each operation."""

import importlib
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from unittest import mock

import pytest
from _pytest.mark import ParameterSet

from services.sidecar.api.contract import CONTRACT
from services.sidecar.api.status import status_response
from services.sidecar.consuming import group_consumer
from services.sidecar.consuming.serial_thread import MAX_WAITING_CALLS
from services.sidecar.faults import Fault, FaultKind
from tests.integration.sidecar.contract_ways import A_MOMENT, ANY, MAX_BODY, PROVOKED, SHOWN, Answer, Sidecars, Way
from tests.integration.sidecar.world import NOWHERE, Kafka, started

NOT_IN_ANSWERS = {FaultKind.VALIDATOR_REQUEST_PARAMETER_QUERY_MISSING, FaultKind.VALIDATOR_REQUEST_PARAMETER_MISSING}
"""No operation needs a parameter outside its path, so far."""


T = TypeVar("T")


def codes(schema: Mapping[str, Any]) -> set[str | None]:
    """Codes of an answer; None where it is no error of ours, but says what became of records, or is no error."""
    found: set[str | None] = set()
    for branch in schema.get("anyOf", [schema]):
        found |= set(branch.get("properties", {}).get("code", {}).get("enum", [None]))
    return found


PROMISED: list[Answer] = sorted(
    {
        (operation.name, status, code)
        for operation in CONTRACT.operations.values()
        for status, bodies in operation.answers.items()
        for schema in bodies.values() or [{}]
        for code in codes(CONTRACT.check(schema).schema)
    },
    key=str,
)


def row(table: Mapping[Answer, T], answer: Answer) -> T | None:
    return table.get(answer) or table.get((ANY, *answer[1:]))


@pytest.fixture(scope="module")
def sidecars(kafka: Kafka, topic: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecars]:
    kafka.create(topic)
    kafka.write(topic, {"value": b"\0\0\0\0\1\2", "partition": 1})
    common: Any = {"request_timeout_ms": 100, "max_request_bytes": MAX_BODY}
    common |= {
        "producer_properties": {"allow.auto.create.topics": "false"},  # brokers of tests may make topics by themselves
        "unknown_topic_timeout_ms": 2_000,
    }
    nobody_answers = {
        "delivery_timeout_ms": 1_000,
        "commit_timeout_ms": 500,
        "transaction_timeout_ms": 1_000,
        "health_timeout_ms": 200,
        "unknown_topic_timeout_ms": 100,
    }
    away: Any = {
        "schema_registry_url": f"http://{NOWHERE}",
        "schema_registry_timeout_ms": 200,
        "schema_registry_attempts": 1,
    }
    audit: Any = {"audit_target": "logfile", "audit_file": tmp_path_factory.mktemp("audit") / "sidecar-audit.log"}
    backend: Any = {"logging_downstream_enabled": True, "downstream_host": f"http://{NOWHERE}"}
    off = ("info_enabled", "logger_enabled", "log_content_enabled", "config_reload_enabled")
    with (
        started(
            kafka.bootstrap, max_instances=200, chaos_monkey_enabled=True, **common, **audit, **away, **backend
        ) as wide,
        started(NOWHERE, **common | nobody_answers) as lonely,
        started(NOWHERE, producer_enabled=False, consumers_enabled=False) as idle,
        started(NOWHERE, max_instances=1, **common | nobody_answers, **dict.fromkeys(off, False)) as closed,
    ):
        yield Sidecars(wide, lonely, closed, idle, topic)


@pytest.fixture(scope="module")
def kafka(kafka_c1: Any) -> Kafka:
    return Kafka(kafka_c1.bootstrap)


@pytest.fixture(scope="module")
def topic() -> str:
    return f"answers-{uuid.uuid4().hex[:8]}"


def each_once(answers: list[Answer]) -> list[ParameterSet]:
    """`make test` gets each code and each operation once, `make soak` each code of each operation."""
    told: set[object] = set()
    marked: list[ParameterSet] = []
    for answer in answers:
        operation, *what = answer
        is_new = not {operation, tuple(what)} <= told
        told |= {operation, tuple(what)}
        marked.append(pytest.param(answer, marks=() if is_new else pytest.mark.soak))
    return marked


@pytest.mark.parametrize(
    "answer",
    each_once([one for one in PROMISED if row(SHOWN, one) is None]),
    ids=lambda one: "-".join(map(str, one)),
)
def test_a_promised_answer_is_given(sidecars: Sidecars, answer: Answer) -> None:
    operation, status, code = answer
    way: Way | None = row(PROVOKED, answer)
    assert way is not None, "the contract promises an answer that nobody knows how to get: see contract_ways.py"
    given = way(sidecars, operation)
    assert (given.status_code, given.json()["code"] if code else None) == (status, code), given.text


@pytest.mark.parametrize("place", sorted(set(SHOWN.values())))
def test_an_answer_that_is_shown_elsewhere_is_shown_there(place: str) -> None:
    module, _, test = place.partition(":")
    assert callable(getattr(importlib.import_module(f"tests.{module}"), test))


@pytest.mark.parametrize("table", [PROVOKED, SHOWN])
def test_no_way_leads_to_an_answer_that_is_not_promised(table: Mapping[Answer, object]) -> None:
    known = {*PROMISED, *((ANY, status, code) for _, status, code in PROMISED)}
    assert set(table) <= known


def test_every_route_is_in_the_contract_and_every_operation_has_one(sidecars: Sidecars) -> None:
    apps: list[Any] = [server.config.app for server, _ in sidecars.wide.sidecar._servers]
    assert {route.name for app in apps for route in app.routes} == set(CONTRACT.operations)


def test_each_code_has_one_status_and_each_is_promised_somewhere() -> None:
    by_code = {code: status for _, status, code in PROMISED if code}
    assert all(by_code[code] == status for _, status, code in PROMISED if code)
    assert by_code == {
        kind.value: status_response(Fault(kind, "")).status_code for kind in FaultKind if kind not in NOT_IN_ANSWERS
    }


@pytest.mark.parametrize("operation", ["subscribe", "assign", "seek", "seek_to_first", "acknowledge", "commit_offsets"])
def test_the_contract_is_asked_before_the_instance(sidecars: Sidecars, operation: str) -> None:
    answer = sidecars.call(sidecars.wide, operation, body=5, path={"instance": "nobody"})
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR11004")


def test_too_many_calls_on_one_instance(sidecars: Sidecars) -> None:
    """Each waits for Kafka, which is away."""
    instance, _ = sidecars.instance(sidecars.lonely)
    with (
        mock.patch.object(group_consumer, "OFFSETS_SECONDS", A_MOMENT),
        ThreadPoolExecutor(2 * MAX_WAITING_CALLS) as calls,
    ):
        ask = {"partitions": [sidecars.partition]}
        path = f"{instance.path}/offsets"
        answers = list(calls.map(lambda _: instance.http.put(path, json=ask), range(2 * MAX_WAITING_CALLS)))
    assert (429, "ERR12903") in {(one.status_code, one.json()["code"]) for one in answers}

"""Topologies against Kafka: each operator in one that a user might write, state, hooks, failures, replacement."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.fixtures.backend import Backend, Record, answer_of
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.stream_world import StreamWorld, streams_of, wait_for_state
from tests.integration.sidecar.test_auditing import whole_lines
from tests.integration.sidecar.world import NOWHERE, WITHIN_SECONDS, Kafka, SidecarWorld, started

TOPOLOGIES = """
def shop():
    topology = Topology("shop")
    customers = topology.table(P + "customers")
    orders = topology.stream(P + "orders").filter(lambda _, order: order["n"] > 0)
    known = orders.join(customers, lambda order, customer: {**order, "city": customer["city"]})
    known.to(P + "known")
    large, small = known.branch(lambda _, order: order["n"] >= 10, lambda _, order: True)
    large.map_values(lambda order: order["n"]).to(P + "large")
    small.map(lambda key, order: (order["city"], order["n"])).to(P + "small")
    fruit = known.flat_map(lambda _, order: [(one, 1) for one in order["fruit"]])
    fruit.group().count(store="fruit").updates().to(P + "fruit")
    by_city = known.group(lambda _, order: order["city"])
    by_city.aggregate(int, lambda _, order, total: total + order["n"], store="cities").updates().to(P + "cities")
    return topology


def minutes():
    topology = Topology("minutes")
    clicks = topology.stream(P + "clicks", time=lambda click: click["at"])
    counted = clicks.group().windows(Tumbling(60_000, grace=10_000)).count(store="clicks")
    counted.closed().backend("/minute").to(P + "minutes")
    return topology


def checked():
    topology = Topology("checked")
    answered = topology.stream(P + "unchecked").backend("/check")
    answered.map_values(lambda value: {"n": 100 // value["n"]}).to(P + "checked")
    return topology


def fragile():
    topology = Topology("fragile", on_error=OnError.STOP)
    topology.stream(P + "fragile").map_values(lambda value: {"n": 100 // value["n"]}).to(P + "solid")
    return topology


def counter():
    topology = Topology("counter")
    topology.stream(P + "events").group().count(store="events").updates().to(P + "counts")
    return topology
"""
ALL = ("shop", "minutes", "checked", "fragile", "counter")


@pytest.fixture(scope="module")
def world(kafka_c1: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamWorld]:
    folder = tmp_path_factory.mktemp("topologies")
    made = StreamWorld(Kafka(kafka_c1.bootstrap), folder)
    made.create("customers", "orders", "known", "large", "small", "fruit", "cities", "clicks", "minutes")
    made.create("unchecked", "checked", "unchecked.dlq", "fragile", "solid", "events", "counts", partitions=1)
    made.define(TOPOLOGIES)
    sys.path.insert(0, str(folder))
    try:
        yield made
    finally:
        sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with Backend().running() as made:
        yield made


@pytest.fixture(scope="module")
def sidecar(world: StreamWorld, backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarWorld]:
    world.write("customers", *((f"c{number}", {"city": f"city{number % 2}"}) for number in range(4)))
    with started(
        world.kafka.bootstrap,
        name=f"{world.prefix}sidecar",
        streams=world.reference(*ALL),
        streams_application_id=world.prefix + "app",
        state_dir=tmp_path_factory.mktemp("state"),
        backend_url=backend.host_url,
        backend_retry_delay_ms=10,
        backend_max_retries=1,
        health_json=True,
        audit_target="logfile",
        audit_file=tmp_path_factory.mktemp("audit") / "audit.log",
    ) as made:
        wait_until(
            lambda: all(one["state"] == "running" for one in streams_of(made).values()), "all run", WITHIN_SECONDS
        )
        yield made


def test_each_operator_does_its_part(world: StreamWorld, sidecar: SidecarWorld) -> None:
    orders = [
        ("c0", {"n": 1, "fruit": ["apple", "pear"]}),
        ("c1", {"n": 2, "fruit": ["apple"]}),
        ("c2", {"n": 30, "fruit": []}),
        ("c3", {"n": 0, "fruit": ["plum"]}),
        ("nobody", {"n": 5, "fruit": ["plum"]}),
    ]
    world.write("orders", *orders)
    world.wait_for_last("cities", {"city0": 31, "city1": 2})
    world.wait_for_last("fruit", {"apple": 2, "pear": 1})
    assert {one.key: one.value["city"] for one in world.wait_for("known", 3)} == {
        "c0": "city0",
        "c1": "city1",
        "c2": "city0",
    }
    assert [(one.key, one.value) for one in world.wait_for("large", 1)] == [("c2", 30)]
    assert sorted((one.key, one.value) for one in world.wait_for("small", 2)) == [("city0", 1), ("city1", 2)]


def test_a_window_is_given_to_the_backend_once_when_it_is_over(
    world: StreamWorld, sidecar: SidecarWorld, backend: Backend
) -> None:
    world.write("clicks", *(("page", {"at": at}) for at in (1_000, 59_000, 61_000, 30_000)))
    world.write("clicks", ("page", {"at": 121_000}), ("page", {"at": 2_000}), ("page", {"at": 129_000}))
    (closed,) = world.wait_for("minutes", 1)
    assert (closed.key, closed.value) == ("page", {"start": 0, "end": 60_000, "value": 3})
    asked = [record for call in backend.calls if call.path == "/minute" for record in call.records]
    assert [record["value"]["value"] for record in asked] == [3]
    state = partial(sidecar.http.get, "/streams/minutes/stores/clicks/page", params={"from": "60000", "to": "200000"})
    still_open = [{"start": 60_000, "end": 120_000, "value": 1}, {"start": 120_000, "end": 180_000, "value": 2}]
    wait_until(lambda: state().json().get("value") == still_open, "what came last is counted too", WITHIN_SECONDS)


def test_what_the_backend_answers_goes_on_and_what_it_refuses_is_a_dead_letter(
    world: StreamWorld, sidecar: SidecarWorld, backend: Backend
) -> None:
    def judge(record: Record) -> dict[str, Any]:
        match record["key"]:
            case "split":
                return {"records": [{"key": "s", "value": {"n": 1}}, {"value": {"n": 2}}]}
            case "drop":
                return {"status": "DROP"}
            case "refuse":
                return {"status": "DEAD_LETTER", "stacktrace": "no such customer"}
            case "replace":
                return {"records": [{"value": {"n": 50}}]}
        return {}

    backend.always(answer_of(judge))
    keys = ("split", "drop", "refuse", "replace", "raise", "plain")
    world.write("unchecked", *((key, {"n": 0 if key == "raise" else 4}) for key in keys))
    world.write("unchecked", ("unreadable", b"{oops"), raw=True)
    world.write("unchecked", ("last", {"n": 1}))
    letters = world.wait_for("unchecked.dlq", 3)
    found = [(one.key, one.value) for one in world.wait_for("checked", 5)]
    assert found == [
        ("s", {"n": 100}),
        ("split", {"n": 50}),
        ("replace", {"n": 2}),
        ("plain", {"n": 25}),
        ("last", {"n": 100}),
    ]
    reasons = {one.key: (one.value, one.headers["dlq.reason"], one.headers["StackTrace"]) for one in letters}
    assert reasons["refuse"] == ({"n": 4}, b"backend", b"no such customer")
    assert reasons["unreadable"][:2] == (b"{oops", b"deserialization")
    assert b"ZeroDivisionError" in reasons["raise"][2]

    def audited(kind: str, topic: str) -> Counter[str]:
        """How often each status is told."""
        told = map(json.loads, whole_lines(sidecar.sidecar._settings.audit_file))
        mine = (one for one in told if (one["auditType"], one["topic"]) == (kind, world.prefix + topic))
        return Counter(one["auditStatus"] for one in mine)

    read = {"SUCCESS": 5, "FAILURE": 3}
    wait_until(lambda: audited("STREAMING_CONSUMER", "unchecked") == read, "what was read is audited", WITHIN_SECONDS)
    wait_until(lambda: audited("STREAMING_PRODUCER", "checked"), "what was written is audited", WITHIN_SECONDS)


def test_a_topology_stops_in_front_of_what_it_raises_for_and_the_others_go_on(
    world: StreamWorld, sidecar: SidecarWorld
) -> None:
    world.write("fragile", ("a", {"n": 5}), ("b", {"n": 0}), ("c", {"n": 4}))
    failed = wait_for_state(sidecar, "fragile", "failed")
    assert f"stopped in front of {world.prefix}fragile-0 offset 1" in failed["reason"]
    assert [one.value for one in world.wait_for("solid", 1)] == [{"n": 20}]
    for name in ("shop", "minutes", "checked", "counter"):
        wait_for_state(sidecar, name, "running")
    readiness = sidecar.http.get("/health/readiness")
    assert readiness.status_code == 400
    assert readiness.json()["checks"]["streams"].startswith("fragile is failed (stopped in front of")
    # its author mends it, and it goes on with that record
    world.define(TOPOLOGIES.replace('"n": 100 // value["n"]}).to(P + "solid")', '"n": value["n"]}).to(P + "solid")'))
    assert sidecar.http.post("/adm/streams/fragile/replace").status_code == 200
    assert [one.value["n"] for one in world.wait_for("solid", 3)] == [20, 0, 4]
    wait_until(lambda: sidecar.http.get("/health/readiness").status_code == 200, "ready again", WITHIN_SECONDS)


def test_a_definition_takes_the_place_of_another_and_no_record_is_lost_or_counted_twice(
    world: StreamWorld, sidecar: SidecarWorld
) -> None:
    for number in range(5):
        world.write("events", *(("k", number) for _ in range(200)))
        source = TOPOLOGIES.replace(
            'updates().to(P + "counts")', f'updates().filter(lambda k, n: n > {number}).to(P + "counts")'
        )
        world.define(source)
        answer = sidecar.http.post("/adm/streams/counter/replace")
        assert answer.status_code == 200, answer.text
    world.wait_for_last("counts", {"k": 1_000})
    assert [one.value for one in world.committed("counts")] == sorted({one.value for one in world.committed("counts")})
    world.define(
        TOPOLOGIES.replace('group().count(store="events")', 'group().windows(Tumbling(5)).count(store="events")')
    )
    refused = sidecar.http.post("/adm/streams/counter/replace")
    assert refused.status_code == 409
    assert "store 'events' has one value for each key" in refused.json()["description"]
    world.define("oops(")
    assert "cannot be loaded: SyntaxError" in sidecar.http.post("/adm/streams/counter/replace").json()["description"]
    world.write("events", ("k", 5))
    world.wait_for_last("counts", {"k": 1_001})


def test_state_is_read_by_key(world: StreamWorld, sidecar: SidecarWorld) -> None:
    world.write("events", ("a/b", 1))
    path = "/streams/counter/stores/events"
    wait_until(
        lambda: sidecar.http.get(f'{path}/"a\\u002fb"', params={"keyFormat": "json"}).status_code == 200,
        "a/b is counted",
    )
    assert sidecar.http.get(f'{path}/"a\\u002fb"', params={"keyFormat": "json"}).json() == {"key": "a/b", "value": 1}
    missing = sidecar.http.get(f"{path}/nobody")
    assert (missing.status_code, missing.json()["code"]) == (404, "ERR12981")
    assert missing.json()["metadata"] == {"elsewhere": False}
    assert sidecar.http.get("/streams/counter/stores/nothing/k").json()["code"] == "ERR12980"
    assert sidecar.http.get("/streams/nothing/stores/events/k").json()["code"] == "ERR12980"
    assert sidecar.http.get(f"{path}/oops", params={"keyFormat": "json"}).json()["code"] == "ERR11004"


def test_without_kafka_a_topology_says_so_and_its_state_is_not_ready(world: StreamWorld) -> None:
    world.define(TOPOLOGIES)
    with started(NOWHERE, streams=world.reference("counter", "absent"), streams_read_timeout_ms=100) as alone:
        answer = alone.http.get("/streams/counter/stores/events/k")
        assert (answer.status_code, answer.json()["code"]) == (503, "ERR12982")
        found = {
            one["name"]: one["reason"] for one in alone.http.get("/adm/streams").json() if one["state"] == "failed"
        }
        assert f"{world.module}:absent cannot be loaded: AttributeError" in found[f"{world.module}:absent"]

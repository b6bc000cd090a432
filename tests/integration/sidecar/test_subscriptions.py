"""Several subscriptions of one sidecar, on a real Kafka with a real backend: from settings, and from the backend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.sidecar.wiring import subscriptions
from tests.fixtures.backend import Answer, Backend, Call, Record, accept, status, text
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar import dead_letter_world
from tests.integration.sidecar.reactive_world import hindrance, order, settings, wait_for_commit, write
from tests.integration.sidecar.world import Kafka, SidecarWorld, started


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as running:
        yield running


@pytest.fixture
def prices(kafka: Kafka, topic: str) -> str:
    """A topic beside `orders`."""
    kafka.create(f"{topic}.prices")
    return f"{topic}.prices"


def declares(*subscriptions_: dict[str, Any]) -> Answer:
    """A backend that declares these, and takes all records."""

    async def answer(call: Call) -> Any:
        return await (accept if call.method == "POST" else text(json.dumps(subscriptions_)))(call)

    return answer


def got(backend: Backend, path: str) -> list[Record]:
    """The records that came on a path."""
    return [record for call in backend.calls if call.path == path for record in call.records]


def several(backend: Backend, group: str, *given: dict[str, Any], **more: object) -> dict[str, Any]:
    """Settings with these subscriptions, and with no topic of their own."""
    usual = {**settings(backend, "", group, **more), "reactive_topics": ()}
    return {**usual, "subscriptions": given}


def test_each_subscription_has_its_group_formats_path_and_policy(
    kafka: Kafka, backend: Backend, orders: str, prices: str, group: str
) -> None:
    kafka.create(f"{prices}.dlq")  # topics of a pattern are not known before they are found
    backend.poison(lambda record: record["topic"] == prices, status(400))
    first = {"name": "orders", "topics": [orders], "path": "/orders", "valueFormat": "json"}
    second = {
        "name": "prices",
        "topicPattern": prices,
        "group": f"{group}-2",
        "path": "/prices",
        "maxRetries": 0,
    }
    with started(kafka.bootstrap, **several(backend, group, first, {**second, "valueFormat": "auto"})) as world:
        kafka.write(orders, {"key": b"k", "value": b'{"n":1}', "partition": 0})
        kafka.write(prices, {"value": b"a text", "partition": 1})
        wait_for_commit(kafka, group, orders, 0, 1)
        wait_for_commit(kafka, f"{group}-2", prices, 1, 1)
        assert hindrance(world) == ""
        listed = world.http.get("/adm/kafka/consumers").json()
        names = {one["name"]: one["topics"] or one["topicPattern"] for one in listed}
    assert names == {f"{group}.sidecar-test-orders": [orders], f"{group}-2.sidecar-test-prices": prices}
    (record,) = got(backend, "/orders")
    assert (record["key"], record["value"]) == ("k", {"n": 1})
    assert "valueFormat" not in record
    (refused,) = got(backend, "/prices")
    assert (refused["value"], refused["valueFormat"]) == ("a text", "string")
    assert len(kafka.read(f"{prices}.dlq", None)) == 1  # at the first refusal: it has no retries


def test_a_subscription_that_its_backend_refuses_holds_back_no_other(
    kafka: Kafka, backend: Backend, orders: str, prices: str, group: str
) -> None:
    backend.poison(lambda record: record["topic"] == orders, status(503))
    first = {"name": "orders", "topics": [orders], "path": "/orders"}
    second = {"name": "prices", "topics": [prices], "path": "/prices", "group": f"{group}-2"}
    opened = {"backend_circuit_failures": 1}
    with started(kafka.bootstrap, **several(backend, group, first, second, **opened)) as world:
        write(kafka, orders, 1)
        wait_until(
            lambda: "subscription 'orders': the backend is not called" in hindrance(world), "its circuit is open"
        )
        write(kafka, prices, 20)
        wait_for_commit(kafka, f"{group}-2", prices, 0, 20)
        assert kafka.committed(group, orders, 0) < 0
        backend.cure()
        wait_for_commit(kafka, group, orders, 0, 1)


def test_the_settings_own_subscription_runs_beside_further_ones(
    kafka: Kafka, backend: Backend, orders: str, prices: str, group: str
) -> None:
    further = {"name": "prices", "topics": [prices], "path": "/prices"}
    given = {**settings(backend, orders, group), "subscriptions": [further]}
    with started(kafka.bootstrap, **given):
        write(kafka, orders, 1)
        write(kafka, prices, 1)
        wait_for_commit(kafka, group, orders, 0, 1)
        wait_for_commit(kafka, group, prices, 0, 1)
    assert [record["topic"] for record in got(backend, "/kafka/records")] == [orders]
    assert [record["topic"] for record in got(backend, "/prices")] == [prices]


def test_an_order_to_one_subscription_holds_over_a_restart_and_for_no_other(
    kafka: Kafka, backend: Backend, orders: str, prices: str, group: str, tmp_path: Path
) -> None:
    first = {"name": "orders", "topics": [orders]}
    second = {"name": "prices", "topics": [prices]}
    given = several(backend, group, first, second, state_dir=tmp_path)
    with started(kafka.bootstrap, **given) as world:
        answer = world.http.post(f"/adm/kafka/consumers/{group}.sidecar-test-orders/pause")
        assert answer.status_code == 200, answer.text
    with started(kafka.bootstrap, **given) as world:
        write(kafka, orders, 1)
        write(kafka, prices, 1)
        wait_for_commit(kafka, group, prices, 0, 1)
        assert kafka.committed(group, orders, 0) < 0
        assert world.http.post(f"/adm/kafka/consumers/{group}.sidecar-test-orders/resume").status_code == 200
        wait_for_commit(kafka, group, orders, 0, 1)


def test_dead_letters_come_again_as_their_subscription_has_it(
    kafka: Kafka, backend: Backend, orders: str, prices: str, group: str
) -> None:
    kafka.create(f"{prices}.dlq", 1)
    dead_letter_world.fail(kafka, prices, {"key": b"k", "value": b'{"n":1}'})
    first = {"name": "orders", "topics": [orders], "path": "/orders"}
    second = {"name": "prices", "topics": [prices], "path": "/prices", "valueFormat": "json"}
    with started(kafka.bootstrap, **several(backend, group, first, second)) as world:
        (peeked,) = world.http.get("/adm/kafka/deadletters", params={"topic": prices}).json()
        assert peeked["value"] == {"n": 1}
        answer = world.http.get("/consumers/deadLetter/reactive", params={"topic": prices, "timeout": 20_000})
        assert (answer.status_code, answer.json()["records"]) == (200, 1)
    (record,) = got(backend, "/prices")
    assert record["value"] == {"n": 1}


def test_the_backend_declares_its_subscriptions(
    kafka: Kafka, backend: Backend, orders: str, prices: str, group: str
) -> None:
    backend.always(
        declares(
            {"name": "orders", "topics": [orders], "path": "/orders"},
            {"name": "prices", "topics": [prices], "group": f"{group}-2", "path": "/prices"},
        )
    )
    backend.stop()
    with started(kafka.bootstrap, **several(backend, group, subscriptions_from_backend=True)) as world:
        wait_until(lambda: "does not declare its subscriptions at /subscriptions" in hindrance(world), "it waits")
        backend.start()
        write(kafka, orders, 1)
        write(kafka, prices, 1)
        wait_for_commit(kafka, group, orders, 0, 1)
        wait_for_commit(kafka, f"{group}-2", prices, 0, 1)
        assert hindrance(world) == ""
    asked = [call for call in backend.calls if call.method == "GET"]
    assert [call.path for call in asked] == ["/subscriptions"]
    assert [record["topic"] for record in got(backend, "/prices")] == [prices]


def get_again(world: SidecarWorld) -> list[str]:
    """The modules that an operator's reload of subscriptions has reloaded."""
    answer = world.http.post("/adm/modules", json=["subscriptions"])
    assert answer.status_code == 200, answer.text
    modules: list[str] = answer.json()
    return modules


def test_a_bad_declaration_begins_nothing_and_is_mended_without_a_restart(
    kafka: Kafka, backend: Backend, orders: str, group: str
) -> None:
    good = {"name": "orders", "topics": [orders], "path": "/orders"}
    backend.always(declares(good, {"name": "prices", "path": "/prices"}))
    own = {**settings(backend, orders, f"{group}-own"), "subscriptions_from_backend": True}
    with started(kafka.bootstrap, **own) as world:
        write(kafka, orders, 1)
        wait_for_commit(kafka, f"{group}-own", orders, 0, 1)  # subscriptions of the settings do not wait
        wait_until(lambda: "cannot be used: /1: " in hindrance(world), "readiness has the reason")
        assert "has topics, or a topicPattern" in hindrance(world)
        assert get_again(world) == []
        backend.always(declares({**good, "group": group}))
        assert get_again(world) == ["subscriptions"]
        wait_for_commit(kafka, group, orders, 0, 1)
        wait_until(lambda: hindrance(world) == "", "it is ready")
        assert get_again(world) == ["subscriptions"]
    assert len(got(backend, "/orders")) == 1


def test_a_backend_that_never_answers_is_asked_a_bounded_number_of_times(
    kafka: Kafka, backend: Backend, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "FIRST_PAUSE_SECONDS", 0.01)
    backend.always(status(404))
    given = several(backend, group, subscriptions_from_backend=True, subscriptions_attempts=3)
    with started(kafka.bootstrap, **given) as world:
        backend.wait_for_calls(3)
        wait_until(lambda: "answers 404" in hindrance(world), "readiness has the reason")
        backend.always(declares())
        assert get_again(world) == ["subscriptions"]
        wait_until(lambda: hindrance(world) == "", "it is ready")
    assert len(backend.calls) == 4


def test_a_drain_of_one_subscription_leaves_the_others_reading(
    kafka: Kafka, backend: Backend, orders: str, prices: str, group: str
) -> None:
    first = {"name": "orders", "topics": [orders], "path": "/orders"}
    given = {**several(backend, group, first), "reactive_topics": (prices,)}
    with started(kafka.bootstrap, **given) as world:
        order(world, group, "drain")
        write(kafka, prices, 1)
        write(kafka, orders, 1)
        wait_for_commit(kafka, group, orders, 0, 1)
        assert kafka.committed(group, prices, 0) < 0

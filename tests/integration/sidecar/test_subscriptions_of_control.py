"""Subscriptions that operators declare by control: with a real control, Kafka, two sidecars in one group, a backend."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from mesh.rpc import admin, instances
from mesh.rpc import subscriptions as rpc
from services.sidecar.telemetry import metrics
from tests.fixtures.backend import Answer, Backend, Call, accept, held, text
from tests.integration.control.world import CALL, World, refused, until
from tests.integration.sidecar.reactive_world import wait_for_commit, write
from tests.integration.sidecar.test_with_control import control  # noqa: F401
from tests.integration.sidecar.world import Kafka, SidecarWorld, started_here

RUNNING, REFUSED = rpc.SUBSCRIPTION_STATE_RUNNING, rpc.SUBSCRIPTION_STATE_REFUSED
ENDING = rpc.SUBSCRIPTION_STATE_ENDING
run = asyncio.to_thread


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend().running() as running:
        yield running


def settings(world: World, backend: Backend, name: str, folder: Path, **more: object) -> dict[str, Any]:
    """A sidecar that reads nothing by its own settings."""
    return {
        "name": name,
        "control_addresses": f"127.0.0.1:{world.control.port}",
        "state_dir": str(folder),
        "backend_url": backend.host_url,
        "backend_retry_delay_ms": 20,
        "value_format": "string",
        "reactive_commit_interval_ms": 50,
        "restore_timeout_ms": 300,
        "health_json": True,
        **more,
    }


class Operator:
    """Declares subscriptions, and looks what became of them."""

    def __init__(self, world: World) -> None:
        self._stub = world.subscriptions
        self._world = world

    async def declare(self, name: str, *sidecars: str, reason: str = "", **members: Any) -> int:
        spec = rpc.SubscriptionSpec(**members)
        wanted = rpc.DeclaredSubscription(name=name, sidecars=sidecars, spec=spec)
        request = rpc.DeclareSubscriptionRequest(subscription=wanted, reason=reason)
        return (await self._stub.DeclareSubscription(request, timeout=CALL)).revision

    async def withdraw(self, name: str) -> int:
        request = rpc.WithdrawSubscriptionRequest(name=f"subscriptions/{name}", reason="no more of it")
        return (await self._stub.WithdrawSubscription(request, timeout=CALL)).revision

    async def revert(self, revision: int) -> int:
        request = rpc.RevertSubscriptionsRequest(to_revision=revision)
        return (await self._stub.RevertSubscriptions(request, timeout=CALL)).revision

    async def listed(self, sidecar: str = "") -> rpc.ListSubscriptionsResponse:
        return await self._stub.ListSubscriptions(rpc.ListSubscriptionsRequest(sidecar=sidecar), timeout=CALL)

    async def states(self, name: str) -> dict[str, int]:
        """The state of a subscription at each sidecar that has it."""
        return {each.sidecar: each.state for each in (await self.listed()).reports if each.name == name}

    async def runs(self, name: str, *sidecars: str, revision: int = 0) -> None:
        """Returns when exactly these sidecars run it, and all of them as of that revision at least."""

        async def is_so() -> bool:
            reports = [each for each in (await self.listed()).reports if each.name == name]
            states = {each.sidecar: each.state for each in reports}
            well = all(each.revision >= revision and not each.problem for each in reports)
            return states == dict.fromkeys(sidecars, RUNNING) and well

        await until(is_so, f"{name} runs at {sidecars}")

    async def is_shared(self, group: str, count: int) -> None:
        """Returns when so many members of the group have partitions."""

        async def is_so() -> bool:
            page = await self._world.instances.ListInstances(instances.ListInstancesRequest(group=group), timeout=CALL)
            return [len(each.partitions) for each in page.statuses] == [1] * count

        await until(is_so, f"{count} members of {group} have a partition each")

    async def history(self, name: str) -> list[str]:
        request = admin.ListHistoryRequest(name=f"subscriptions/{name}")
        answer = await self._world.decisions.ListHistory(request, timeout=CALL)
        return [sentence for entry in answer.entries for sentence in entry.changes]


def shown(sidecar: SidecarWorld) -> dict[str, dict[str, Any]]:
    """What a sidecar's own endpoint says of its subscriptions, by name and source."""
    answer: httpx.Response = sidecar.http.get("/adm/kafka/subscriptions")
    assert answer.status_code == 200, answer.text
    return {f"{each['name']} of {each['source']}": each for each in answer.json()}


async def test_declared_at_run_time_it_runs_at_both_and_at_one_that_comes_later_until_it_is_withdrawn(
    control: World,  # noqa: F811
    kafka: Kafka,
    backend: Backend,
    orders: str,
    group: str,
    tmp_path: Path,
) -> None:
    operator = Operator(control)
    async with started_here(kafka.bootstrap, **settings(control, backend, "shop-1", tmp_path)) as first:
        revision = await operator.declare(
            "orders", "shop-*", reason="a shop opens", topics=[orders], group=group, path="/orders", max_retries=7
        )
        await operator.runs("orders", "shop-1")
        await run(write, kafka, orders, 10)
        await run(wait_for_commit, kafka, group, orders, 0, 10)
        async with (
            started_here(kafka.bootstrap, **settings(control, backend, "shop-2", tmp_path)) as second,
            started_here(kafka.bootstrap, **settings(control, backend, "till", tmp_path)) as other,
        ):
            await operator.runs("orders", "shop-1", "shop-2")
            await run(write, kafka, orders, 10, 0, 10)
            await run(write, kafka, orders, 10, 1)
            await run(wait_for_commit, kafka, group, orders, 0, 20)
            await run(wait_for_commit, kafka, group, orders, 1, 10)
            assert {call.path for call in backend.calls} == {"/orders"}
            places = {(record["partition"], record["offset"]) for record in backend.records}
            assert places == {(0, n) for n in range(20)} | {(1, n) for n in range(10)}
            one = (await run(shown, second))["orders of control"]
            assert one == {
                "name": "orders", "source": "control", "state": "running", "revision": revision,
                "consumer": f"{group}.shop-2-orders",
            }  # fmt: skip
            assert await run(shown, other) == {}
            await operator.withdraw("orders")
            await operator.runs("orders")
            assert await run(shown, first) == await run(shown, second) == {}
            calls = len(backend.calls)
            await run(write, kafka, orders, 1, 0, 20)
            await operator.declare("again", "shop-1", topics=[orders], group=group, path="/again")
            await run(wait_for_commit, kafka, group, orders, 0, 21)
            assert [call.path for call in backend.calls[calls:]] == ["/again"]  # where the other stopped, and no more
    assert await operator.history("orders") == [
        "subscription orders withdrawn",
        f"subscription orders declared for sidecars shop-*: {orders}",
    ]


async def test_it_outlives_restarts_without_control_and_a_sidecar_that_was_away_hears_of_its_end(
    control: World,  # noqa: F811
    kafka: Kafka,
    backend: Backend,
    orders: str,
    group: str,
    tmp_path: Path,
) -> None:
    operator = Operator(control)
    mine = settings(control, backend, "shop-1", tmp_path)
    await operator.declare("orders", "shop-1", topics=[orders], group=group, path="/orders")
    async with started_here(kafka.bootstrap, **mine):
        await operator.runs("orders", "shop-1")
    nowhere = {**mine, "control_addresses": "127.0.0.1:1"}
    async with started_here(kafka.bootstrap, **nowhere) as sidecar:
        await run(write, kafka, orders, 5)
        await run(wait_for_commit, kafka, group, orders, 0, 5)
        assert (await run(shown, sidecar))["orders of control"]["state"] == "running"
        (sample,) = next(iter(metrics.subscriptions.collect())).samples
        assert (sample.labels, sample.value) == ({"source": "control", "state": "running"}, 1)
    await operator.withdraw("orders")
    async with started_here(kafka.bootstrap, **mine) as sidecar:

        async def is_gone() -> bool:
            return not await run(shown, sidecar) and not await operator.states("orders")

        await until(is_gone, "it has stopped the subscription")
    async with started_here(kafka.bootstrap, **nowhere) as sidecar:
        assert await run(shown, sidecar) == {}  # the end is on disk, too


async def test_what_is_on_its_way_at_a_withdrawal_is_finished_and_committed(
    control: World,  # noqa: F811
    kafka: Kafka,
    backend: Backend,
    orders: str,
    group: str,
    tmp_path: Path,
) -> None:
    operator, told = Operator(control), threading.Event()
    members: dict[str, Any] = {"topics": [orders], "group": group, "max_batch_records": 3}
    async with (
        started_here(kafka.bootstrap, **settings(control, backend, "shop-1", tmp_path)),
        started_here(kafka.bootstrap, **settings(control, backend, "shop-2", tmp_path)),
    ):
        await operator.declare("orders", "shop-*", path="/orders", **members)
        await operator.runs("orders", "shop-1", "shop-2")
        await operator.is_shared(group, 2)
        await run(write, kafka, orders, 1)
        await run(write, kafka, orders, 1, 1)
        await run(wait_for_commit, kafka, group, orders, 0, 1)
        await run(wait_for_commit, kafka, group, orders, 1, 1)
        before = len(backend.records)
        backend.always(held(told))
        await run(write, kafka, orders, 30, 0, 1)
        await run(write, kafka, orders, 30, 1, 1)
        await run(backend.wait_for_records, before + 6)
        await operator.withdraw("orders")

        async def is_ending() -> bool:
            return await operator.states("orders") == dict.fromkeys(("shop-1", "shop-2"), ENDING)

        await until(is_ending, "both let what is on its way end")
        told.set()
        await operator.runs("orders")
        seen = [(record["partition"], record["offset"]) for record in backend.records[before:]]
        assert sorted(seen) == [(partition, n) for partition in (0, 1) for n in (1, 2, 3)]
        for partition in (0, 1):
            assert await run(kafka.committed, group, orders, partition) == 4
        await operator.declare("orders", "shop-*", path="/later", **members)
        await run(wait_for_commit, kafka, group, orders, 0, 31)
        await run(wait_for_commit, kafka, group, orders, 1, 31)
    seen = [(record["partition"], record["offset"]) for record in backend.records]
    assert sorted(seen) == [(partition, n) for partition in (0, 1) for n in range(31)]  # none lost, none twice


async def test_a_replaced_one_goes_on_where_the_first_stopped(
    control: World,  # noqa: F811
    kafka: Kafka,
    backend: Backend,
    orders: str,
    group: str,
    tmp_path: Path,
) -> None:
    operator = Operator(control)
    async with started_here(kafka.bootstrap, **settings(control, backend, "shop-1", tmp_path)):
        earlier = await operator.declare("orders", "shop-1", topics=[orders], group=group, path="/one")
        await operator.runs("orders", "shop-1")
        await run(write, kafka, orders, 3)
        await run(wait_for_commit, kafka, group, orders, 0, 3)
        later = await operator.declare("orders", "shop-1", topics=[orders], group=group, path="/two")
        await operator.runs("orders", "shop-1", revision=later)
        await run(write, kafka, orders, 3, 0, 3)
        await run(wait_for_commit, kafka, group, orders, 0, 6)
        await operator.revert(earlier)
        await operator.runs("orders", "shop-1", revision=later + 1)
        await run(write, kafka, orders, 3, 0, 6)
        await run(wait_for_commit, kafka, group, orders, 0, 9)
    paths = {record["offset"]: call.path for call in backend.calls for record in call.records}
    assert [paths[n] for n in range(9)] == ["/one"] * 3 + ["/two"] * 3 + ["/one"] * 3
    assert len(backend.records) == 9
    assert await operator.history("orders") == [
        "subscription orders: path /two -> /one",
        "subscription orders: path /one -> /two",
        f"subscription orders declared for sidecars shop-1: {orders}",
    ]
    assert await operator.revert(earlier) == 0


async def test_an_order_about_it_outlives_a_restart_and_ends_with_the_subscription(
    control: World,  # noqa: F811
    kafka: Kafka,
    backend: Backend,
    orders: str,
    group: str,
    tmp_path: Path,
) -> None:
    operator = Operator(control)
    mine, name = settings(control, backend, "shop-1", tmp_path), f"{group}.shop-1-orders"
    async with started_here(kafka.bootstrap, **mine) as sidecar:
        await operator.declare("orders", "shop-1", topics=[orders], group=group)
        await operator.runs("orders", "shop-1")
        paused = await run(sidecar.http.post, f"/adm/kafka/consumers/{name}/pause")
        assert paused.json()["state"] == "paused", paused.text
    async with started_here(kafka.bootstrap, **mine) as sidecar:
        await operator.runs("orders", "shop-1")
        (one,) = (await run(sidecar.http.get, "/adm/kafka/consumers")).json()
        assert one["state"] == "paused"
        await operator.withdraw("orders")
        await operator.runs("orders")
        await operator.declare("orders", "shop-1", topics=[orders], group=group)
        await run(write, kafka, orders, 1)
        await run(wait_for_commit, kafka, group, orders, 0, 1)


def declares(*subscriptions: dict[str, Any]) -> Answer:
    async def answer(call: Call) -> Any:
        return await (accept if call.method == "POST" else text(json.dumps(subscriptions)))(call)

    return answer


async def test_settings_win_over_control_and_control_over_the_backend(
    control: World,  # noqa: F811
    kafka: Kafka,
    backend: Backend,
    orders: str,
    group: str,
    tmp_path: Path,
) -> None:
    operator = Operator(control)
    backend.always(declares({"name": "other", "topics": [orders], "group": f"{group}-b", "path": "/backend"}))
    own = {"name": "mine", "topics": [orders], "group": f"{group}-s", "path": "/settings"}
    more = {"subscriptions": [own], "subscriptions_from_backend": True}
    async with started_here(kafka.bootstrap, **settings(control, backend, "shop-1", tmp_path, **more)) as sidecar:
        await operator.runs("other", "shop-1")
        await operator.declare("mine", "shop-1", topics=[orders], group=f"{group}-c", path="/control")
        await operator.declare("twin", "shop-1", topics=[orders], group=f"{group}-s", path="/control")
        await operator.declare("other", "shop-1", topics=[orders], group=f"{group}-c", path="/control")

        async def is_settled() -> bool:
            states = {name: one["state"] for name, one in (await run(shown, sidecar)).items()}
            return states == {
                "mine of settings": "running",
                "mine of control": "refused",
                "twin of control": "refused",
                "other of control": "running",
                "other of backend": "refused",
            }

        await until(is_settled, "each name has one winner")
        said = {name: one.get("problem", "") for name, one in (await run(shown, sidecar)).items()}
        assert said["mine of control"] == "this sidecar, by its settings, has a subscription of this name, which wins"
        assert f"read {orders} in one group, {group}-s" in said["twin of control"]
        assert said["other of backend"] == "control has a subscription of this name, which wins"
        ready = await run(sidecar.http.get, "/health/readiness")
        assert ready.json()["checks"]["reactive"] == "OK", ready.text  # what control cannot have here hurts nobody
        await run(write, kafka, orders, 1)
        await run(wait_for_commit, kafka, f"{group}-s", orders, 0, 1)
        await run(wait_for_commit, kafka, f"{group}-c", orders, 0, 1)
        assert sorted(call.path for call in backend.calls if call.method == "POST") == ["/control", "/settings"]
        await operator.withdraw("other")
        await run(wait_for_commit, kafka, f"{group}-b", orders, 0, 1)  # the backend's begins when control's is gone


async def test_a_sidecar_says_why_it_does_not_run_one_and_runs_the_others(
    control: World,  # noqa: F811
    kafka: Kafka,
    backend: Backend,
    orders: str,
    group: str,
    tmp_path: Path,
) -> None:
    operator = Operator(control)
    deaf = settings(control, backend, "deaf", tmp_path, subscriptions_from_control=False)
    async with (
        started_here(kafka.bootstrap, **settings(control, backend, "shop-1", tmp_path)),
        started_here(kafka.bootstrap, **deaf),
    ):
        await operator.declare("avro", "*", topics=[orders], group=f"{group}-a", value_format="avro")
        await operator.declare("orders", "*", topics=[orders], group=group)
        await operator.runs("orders", "shop-1")
        (report,) = [each for each in (await operator.listed("shop-1")).reports if each.name == "avro"]
        assert report.state == REFUSED
        assert "schema_registry_url" in report.problem
        assert list((await operator.listed()).silent_sidecars) == ["deaf"]
        await run(write, kafka, orders, 1)
        await run(wait_for_commit, kafka, group, orders, 0, 1)


async def test_bad_input_is_refused_with_its_place_and_leaves_no_event(control: World, orders: str) -> None:  # noqa: F811
    operator = Operator(control)
    before = (await operator.listed()).subscriptions
    bad = operator.declare("orders", "shop-1", topics=[orders], max_retries=-1, path="orders")
    await refused(bad, grpc.StatusCode.INVALID_ARGUMENT, "path: ", "maxRetries: ")
    await refused(operator.withdraw("nothing"), grpc.StatusCode.NOT_FOUND, "no subscription 'nothing'")
    await refused(operator.revert(999_999), grpc.StatusCode.INVALID_ARGUMENT, "no revision so far")
    assert (await operator.listed()).subscriptions == before
    revision = await operator.declare("orders", "shop-1", topics=[orders])
    assert await operator.declare("orders", "shop-1", topics=[orders]) == revision  # the same again decides nothing
    await control.stop()
    await control.start()
    (one,) = (await Operator(control).listed()).subscriptions
    assert (one.name, one.revision, list(one.spec.topics)) == ("orders", revision, [orders])

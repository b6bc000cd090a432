"""A sidecar and a real control: operators see instances, their orders are carried out, and all of it is in the log."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mesh import durations
from mesh.rpc import admin, events, instances
from services.sidecar.control import control_link, order_follower
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.control.world import CALL, World, until
from tests.integration.sidecar.world import Kafka, started_here

SIDECAR = "members/sidecar-test"
WAIT_MS = 20_000


@pytest.fixture
async def control(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[World]:
    monkeypatch.setattr(control_link, "BEAT_SECONDS", 0.3)
    monkeypatch.setattr(control_link, "MAX_PAUSE_SECONDS", 0.3)
    monkeypatch.setattr(order_follower, "MAX_PAUSE_SECONDS", 0.3)
    database = await asyncio.to_thread(postgres.migrated)
    async with World(database, kafka_c1.bootstrap, unique_name("control-events")) as world:
        yield world


class Operator:
    """Gives orders, and waits for their outcomes."""

    def __init__(self, control: World) -> None:
        self._control = control

    async def order(self, target: str, **command: object) -> events.OrderOutcome:
        request = instances.PlaceOrderRequest(
            target=target,
            command=events.SidecarCommand(**command),  # type: ignore[arg-type]
            wait=durations.of_ms(WAIT_MS),
            reason="a test",
        )
        placed = await self._control.instances.PlaceOrder(request, timeout=CALL)
        assert placed.HasField("outcome"), f"{placed.name} has no outcome"
        return placed.outcome

    async def done(self, target: str, **command: object) -> events.OrderOutcome:
        outcome = await self.order(target, **command)
        assert outcome.result == events.ORDER_RESULT_DONE, outcome.description
        return outcome

    async def describe(self, target: str) -> instances.DescribedInstance:
        return await self._control.instances.DescribeInstance(
            instances.DescribeInstanceRequest(name=target), timeout=CALL
        )

    async def listed(self) -> list[str]:
        page = await self._control.instances.ListInstances(
            instances.ListInstancesRequest(sidecar="sidecar-test"), timeout=CALL
        )
        return [each.name for each in page.instances]

    async def told(self, name: str) -> list[str]:
        """The history of an instance or a sidecar in words."""
        answer = await self._control.decisions.ListHistory(admin.ListHistoryRequest(name=name), timeout=CALL)
        return [sentence for entry in answer.entries for sentence in entry.changes]


async def test_an_instance_from_its_registration_to_its_removal(
    control: World, kafka: Kafka, orders: str, group: str, tmp_path: Path
) -> None:
    operator, target = Operator(control), f"instances/{group}.c1"
    run = asyncio.to_thread
    settings = {"control_addresses": f"127.0.0.1:{control.control.port}", "state_dir": str(tmp_path)}
    async with started_here(kafka.bootstrap, **settings) as sidecar:
        instance = await run(sidecar.create, group, "c1", valueFormat="string")
        await run(instance.subscribe, orders)
        await run(kafka.write, orders, *({"value": value, "partition": 0} for value in ("a", "b", "c")))
        await run(instance.read_all, 3, timeout=5_000)
        await run(instance.commit, {"topic": orders, "partition": 0, "offset": 0})

        async def seen() -> bool:
            if target not in await operator.listed():
                return False
            described = await operator.describe(target)
            partitions = {one.partition: one for one in described.status.partitions}
            return (
                described.sidecar_alive
                and list(described.instance.topics) == [orders]
                and described.status.state == instances.INSTANCE_STATE_READING
                and 0 in partitions
                and (partitions[0].position, partitions[0].committed) == (3, 1)
                and partitions[0].lag == 0
            )

        await until(seen, "operators see the instance: group, topics, position, commit, lag, state")
        await operator.done(target, pause=events.PauseInstance())
        assert await run(instance.read, timeout=200) == []
    async with started_here(kafka.bootstrap, **settings) as sidecar:  # it is paused still, and obeys the same operators
        instance = type(instance)(sidecar.http, f"/consumers/{group}/instances/c1")

        async def paused() -> bool:
            described = await operator.describe(target)
            return described.instance.paused and described.status.state == instances.INSTANCE_STATE_PAUSED

        await until(paused, "operators see that it is paused")
        await operator.done(target, resume=events.ResumeInstance())
        first = await operator.done(target, seek=events.SeekInstance(first=True))
        assert {"topic": orders, "partition": 0, "offset": 0} in json.loads(first.details_json)
        assert len(await run(instance.read_all, 3, timeout=5_000)) == 3
        await run(instance.commit)
        drained = await operator.done(target, drain=events.DrainInstance(timeout=durations.of_ms(5_000)))
        assert "all that it gave was committed" in drained.description
        await operator.done(target, resume=events.ResumeInstance())
        health = await operator.done(SIDECAR, check_health=events.CheckHealth())
        assert json.loads(health.details_json)["kafka"] == "OK"
        info = await operator.done(SIDECAR, get_info=events.GetInfo())
        assert json.loads(info.details_json)["component"]["sidecar"]["name"] == "sidecar-test"
        levels = await operator.done(SIDECAR, set_log_levels=events.SetLogLevels(levels={f"services.{group}": "ERROR"}))
        assert json.loads(levels.details_json)[f"services.{group}"] == "ERROR"
        shown = await operator.done(SIDECAR, get_log_levels=events.GetLogLevels())
        assert shown.details_json == levels.details_json
        await operator.done(target, remove=events.RemoveInstance())
        assert (await run(instance.delete)).status_code == 404

        async def gone() -> bool:
            return await operator.listed() == []

        await until(gone, "operators do not see it any more")
    history = "\n".join(await operator.told(target))
    for said in ("is to pause", "is to resume", "is to go on at the first record", "is to drain", "is to be removed"):
        assert said in history
    assert history.count("done by sidecar-test") == 6
    asked = "\n".join(await operator.told(SIDECAR))
    for said in ("is asked for its health", "is asked what it is", "is to log", "is asked for its log levels"):
        assert said in asked
    assert asked.count("done by sidecar-test") == 4


async def test_of_two_processes_of_one_name_the_younger_holds_the_instances(
    control: World, kafka: Kafka, orders: str, group: str
) -> None:
    """On two machines: they share control, and nothing else."""
    run = asyncio.to_thread
    settings = {"control_addresses": f"127.0.0.1:{control.control.port}"}
    async with started_here(kafka.bootstrap, **settings) as elder:
        instance = await run(elder.create, group, "c1")
        await run(instance.subscribe, orders)

        async def known() -> bool:
            request = instances.ListInstancesRequest(sidecar="sidecar-test")
            page = await control.instances.ListInstances(request, timeout=CALL)
            return any(each.topics for each in page.instances)

        await until(known, "control knows the instance")
        async with started_here(kafka.bootstrap, **settings) as younger:
            path = f"/consumers/{group}/instances/c1"
            assert (await run(younger.http.get, f"{path}/subscriptions")).json() == {"topics": [orders]}

            async def gave_way() -> bool:
                answer = await run(elder.http.get, f"{path}/subscriptions")
                return answer.status_code == 503 and answer.json()["code"] == "ERR12905"

            await until(gave_way, "the elder serves the instance no more")
            await run(younger.produce, orders, {"value": 1})
            records = await run(type(instance)(younger.http, path).read_all, 1, timeout=5_000)
            assert [record["value"] for record in records] == [1]

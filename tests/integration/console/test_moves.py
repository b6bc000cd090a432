"""A move of a topic with its records on pages: the plan, the move, its end, and the way back. No router copies here."""

from __future__ import annotations

from collections.abc import Callable

from mesh.rpc import drains, drains_grpc
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import OPERATOR, VIEWER, Consoled
from tests.fixtures.readers import Readers
from tests.integration.control.world import CALL, create_topic


async def test_a_move_is_planned_begun_followed_and_cancelled(
    console: Consoled, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("apples")
    readers = Readers(f"{topic}-readers", topic, "none", kafka_c1.bootstrap, kafka_c2.bootstrap)
    create_topic(kafka_c1.bootstrap, topic, 2)
    await console.world.set(topic, "c1")
    await readers.write(topic, 10)
    await readers.commit(topic, 4, 0)
    await console.grant("ada", OPERATOR)
    await console.grant("vera", VIEWER)
    async with console.person("ada") as ada, console.person("vera") as vera:
        assert "Move it with its records" in await ada.sees(f"/topics/{topic}")
        plan = f"/moves/check?topic={topic}&target_cluster=c2&budget=500"
        page = await ada.sees(plan)
        assert "From c1 To c2 Partitions 2 Offsets to copy 10" in page
        assert f"{readers.group} 2 6" in page
        assert "Producers may wait 500 ms" in page
        assert "No topic moves" in await ada.sees("/moves"), "a plan begins nothing"
        assert (await vera.sends(plan, "/moves/start")).status_code == 403

        answer = await ada.sends(plan, "/moves/start", reason="bigger disks")
        assert answer.status_code == 303, answer.text
        move = answer.headers["location"]
        page = await vera.sees(move)
        assert "State copying" in page
        assert "no router has reported yet" in page
        assert "bigger disks" in page
        assert f"{topic} c1 c2 copying" in await vera.sees("/moves")
        assert "It moves now" in await vera.sees(f"/topics/{topic}")
        assert topic in (await vera.client.get("/")).text, "the first page says what moves"
        again = await ada.sends(plan, "/moves/start")
        assert again.status_code == 409, "it moves already"

        assert (await vera.sends(move, f"{move}/cancel")).status_code == 403
        assert (await ada.sends(move, f"{move}/cancel", reason="not today")).status_code == 303
        assert "State cancelled" in await ada.sees(move)
        assert "Drains of clusters" not in await ada.sees("/moves")
        spec = drains.DrainSpec(source_cluster="c1", target_cluster="c2", topics=topic)
        request = drains.StartDrainRequest(spec=spec)
        await drains_grpc.DrainServiceStub(console.world.channel).StartDrain(request, timeout=CALL)
        page = await vera.sees("/moves")
        assert "Drains of clusters" in page
        assert "c1 c2 running 0 of 1 moved, 0 stay" in page
    assert (await console.world.explain(topic)).cluster == "c1"

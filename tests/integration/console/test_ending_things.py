"""A replay is cancelled, and a transaction that hangs is aborted, on their pages."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from mesh.rpc import replays
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import OPERATOR, Consoled
from tests.integration.control.world import CALL, WITHIN, create_topic


async def test_a_replay_is_followed_and_cancelled(
    console: Consoled, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    """No pipeline is there, so the replay waits."""
    topic = unique_name("apples")
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster.bootstrap, topic, 1)
    await console.world.set(topic, "c1")
    spec = replays.ReplaySpec(
        ranges=[replays.ReplayRange(topic=topic)], topic=replays.ReplayToTopic(cluster="c2", source_cluster="c1")
    )
    request = replays.StartReplayRequest(spec=spec, reason="a copy", wait_ms=1)
    started = await console.world.replays.StartReplay(request, timeout=CALL)
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        page = f"/{started.name}"
        assert "State pending" in await ada.sees(page)
        assert "a copy" in await ada.sees(page)
        assert "pending" in await ada.sees("/replays?open=1")
        assert (await ada.sends(page, f"{page}/cancel", reason="not needed")).status_code == 303
        assert "State cancelled" in await ada.sees(page)
        assert "There is no replay." in await ada.sees("/replays?open=1")


async def test_an_open_transaction_is_aborted(
    console: Consoled, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic, identifier = unique_name("apples"), unique_name("shop?pay")
    create_topic(kafka_c1.bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap, "transactional.id": identifier})
    producer.init_transactions(WITHIN)
    producer.begin_transaction()
    producer.produce(topic, b"a record")
    producer.flush(WITHIN)
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        assert identifier in await ada.sees(f"/transactions?prefix={identifier.partition('?')[0]}")
        page = f"/transactions/{identifier}".replace("?", "%3F")
        assert "State undecided" in await ada.sees(page)
        assert f"{topic} 0" in await ada.sees(page)
        assert (await ada.sends(page, f"{page}/abort", reason="it hangs")).status_code == 303
        assert "Abort it" not in await ada.sees(page)
    assert (await console.world.history())[0].transaction_end_ordered.transactional_id == identifier

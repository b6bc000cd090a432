"""A control that meets an event of a newer release, as after a roll back: it decides nothing, and says why."""

from __future__ import annotations

from hashlib import sha256

import grpc
import psycopg

from mesh.event_log import FORMAT
from mesh.rpc import events
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import World, refused, until
from tests.unit.mesh.test_event_log import A_LATER_KIND

REASON = "of a kind that this release does not know: a newer release of the mesh has written it, run that one"


def append_newer(database: str, previous_hash: bytes, position: int) -> None:
    """As a control of a newer release does it."""
    event = events.Event(
        position=position, stream="gates/1", stream_version=1, format=FORMAT, previous_hash=previous_hash
    )
    body = event.SerializeToString(deterministic=True) + A_LATER_KIND
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into events (position, stream, stream_version, kind, time, actor, body, payload)"
            " values (%s, 'gates/1', 1, 'gate_opened', now(), 'ada', %s, '{}')",
            (position, body),
        )
        connection.execute("update log_head set position = %s, hash = %s", (position, sha256(body).digest()))


async def test_a_control_that_does_not_know_an_event_stands_by_and_names_it(
    database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic) as older:
        await older.register("c1", kafka_c1.bootstrap)
        rule = await older.set("orders", "c1")
        chain = older.control.journal.chain
        append_newer(database, chain.hash, chain.position + 1)
        await until(lambda: REASON in older.lifecycle.reason, "control has met the event")
        await refused(older.set("orders", "c1"), grpc.StatusCode.UNAVAILABLE, f"event {chain.position + 1}", REASON)
        status = await older.status()
        assert status.revision == rule.revision, "it answers with what it knows"
    restarted = World(database, kafka_c1.bootstrap, events_topic)
    await restarted.start(wait=False)
    try:
        await until(lambda: REASON in restarted.lifecycle.reason, "control has met the event")
        await refused(restarted.set("orders", "c1"), grpc.StatusCode.UNAVAILABLE, f"event {chain.position + 1}", REASON)
    finally:
        await restarted.stop()

"""ACLs of a real control, by a real router, at a real gateway: a client may write as soon as a decision says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaError, Producer

from mesh.rpc import acls
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.pulses import Pulse
from tests.fixtures.waiting import wait_until
from tests.integration.control.test_acls import Acls, acl, router_of
from tests.integration.control.world import World, create_topic
from tests.integration.router.parts import WITHIN_S, ServiceProcess

SOON_S = 60.0
"""1 s on a machine that is not busy."""
REVOKED_S = 10.0
"""From control's answer to the client's end of its connection, less the time for which this process stood still. A
machine that is not busy takes less than 1 s; `gateway/test_revoking.py` measures it in the gateway.
"""
ANSWER_S = 60.0
API_VERSIONS = bytes.fromhex("0000000a00120000000000010000")
"""Version 0, without a client.id."""


def write(bootstrap: str, topic: str) -> KafkaError | None:
    """The error of one record by a client that is new; None if the topic has the record."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": int(ANSWER_S * 1000)})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(ANSWER_S) == 0
    return errors[0]


def code_of(bootstrap: str, topic: str) -> int:
    error = write(bootstrap, topic)
    return 0 if error is None else error.code()


async def test_a_client_may_write_as_soon_as_a_decision_says_so_and_no_longer(
    mesh_of_two: World, kafka_c1: KafkaCluster, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    control, topic = Acls(mesh_of_two), unique_name("orders")
    create_topic(kafka_c1.bootstrap, topic, 1)
    await mesh_of_two.set(topic, "c1")
    port = free_block(2)
    async with router_of(mesh_of_two, tmp_path) as router:
        settings = {
            "NAME": "g1",
            "LISTEN": f"127.0.0.1:{port}",
            "ROUTER_ADDRESSES": router.address,
            "STATE_DIR": str(tmp_path / "state"),
            "DRAIN_TIMEOUT_S": "1",
        }
        gateway = ServiceProcess("gateway", port, tmp_path / "g1.log", settings)
        gateway.start()
        try:
            await asyncio.to_thread(wait_until, lambda: gateway.ready() == "ready", "it is ready", WITHIN_S)

            async def becomes(code: int) -> None:
                began = time.monotonic()
                while await asyncio.to_thread(code_of, f"127.0.0.1:{port}", topic) != code:
                    assert time.monotonic() - began < SOON_S, f"error {code} was due"

            refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
            await becomes(0)
            await control.mode(acls.ACL_MODE_ENFORCE, "User:root")
            await becomes(refused)
            writes = acl(topic, "User:ANONYMOUS", operation=acls.ACL_OPERATION_WRITE)
            await control.create(writes)
            await becomes(0)
            connected, sender = await asyncio.open_connection("127.0.0.1", port)
            sender.write(API_VERSIONS)
            await connected.readexactly(int.from_bytes(await connected.readexactly(4), "big"))
            await control.create(
                acl(topic, "User:*", permission=acls.ACL_PERMISSION_DENY, operation=acls.ACL_OPERATION_ALL)
            )
            async with Pulse() as pulse, asyncio.timeout(ANSWER_S):
                began = time.monotonic()
                assert await connected.read() == b"", "a client without any right is sent away"
                assert time.monotonic() - began - pulse.stood_still_s <= REVOKED_S
            sender.close()
            await becomes(refused)
            await control.mode(acls.ACL_MODE_OBSERVE, "User:root")
            await becomes(0)
        finally:
            await asyncio.to_thread(gateway.stop)

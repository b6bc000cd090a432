"""Memory and CPU of a console as a process of its own, with ten viewers who keep pages open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.console_records import recorded
from tests.fixtures.consoles import Consoled
from tests.fixtures.members import certificate_of
from tests.fixtures.ports import free_block
from tests.fixtures.small_registry import SmallRegistry
from tests.integration.control.world import CALL, WITHIN, create_topic, router, until

VIEWERS = 10
ROUNDS = 3
AT_ONCE = 4
"""Reads at a time, by the default of MAX_READS."""
PAGES = ("/", "/topics", "/groups", "/rules", "/history", "/audit", "/clients", "/replays")
OPEN_S = 5.0
"""Seconds for which the pages stay open while their cost is measured."""
MOST_OF_A_CORE = 0.05
"""Three times what they take on a machine that is not busy."""
MOST_MB = 60.0
"""Of the process's own memory."""
MOST_MORE_MB = 18.0
"""By as many reads at a time as the console allows: the libraries of Kafka, CEL, Avro and Protobuf, and for each read a
client with its records."""

SCHEMAS: dict[int, dict[str, Any]] = {
    7: {"schema": '{"type":"record","name":"R","fields":[{"name":"n","type":"long"},{"name":"t","type":"string"}]}'},
    8: {"schema": 'syntax = "proto3"; message R { int64 n = 1; string t = 2; }', "schemaType": "PROTOBUF"},
}
AVRO = b"\0\0\0\0\x07\x0a\xd0\x0f" + b"x" * 1000
PROTOBUF = b"\0\0\0\0\x08\0\x08\x05\x12\xe8\x07" + b"x" * 1000
"""n is 5, and t has 1,000 characters."""


async def test_ten_viewers_take_less_than_sixty_megabytes(
    console: Consoled, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    for number in range(30):
        await console.world.set(unique_name(f"apples-{number}"), "c1")
    port = free_block(2)
    async with (
        console_process(console, port, tmp_path / "console.log") as process,
        router(console.world, "gateway-1", "gateway-2"),
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(VIEWERS):
            await stack.enter_async_context(viewer(f"http://127.0.0.1:{port}"))
        own = psutil.Process(process.pid)
        before = own.cpu_times()
        await asyncio.sleep(OPEN_S)  # a share of a core is a figure over time
        after, memory = own.cpu_times(), own.memory_full_info()
    used = (after.user + after.system - before.user - before.system) / OPEN_S
    print(f"ten open pages take {100 * used:.2f} % of a core")
    assert used < MOST_OF_A_CORE
    print(f"resident {memory.rss / 1e6:.1f} MB, of which the process's own {memory.uss / 1e6:.1f} MB")
    assert memory.uss / 1e6 < MOST_MB, "pages of libraries, which processes share, are not the console's own"


async def test_ten_viewers_of_records_take_a_bounded_amount_more(
    console: Consoled, kafka_c1: KafkaCluster, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("apples")
    homes = dict.fromkeys((topic, f"{topic}-avro", f"{topic}-proto"), "c1")
    for name in homes:
        create_topic(kafka_c1.bootstrap, name, 2)
    port = free_block(2)
    with SmallRegistry(SCHEMAS) as registry:
        async with (
            recorded(console, tmp_path, {"c1": kafka_c1}, homes, asks_for_tokens=False) as house,
            console_process(
                console, port, tmp_path / "console.log", GATEWAY_ADDRESS=house.address, GATEWAY_PROTOCOL="plaintext",
                SCHEMA_REGISTRY_URL=registry.url,
            ) as process,
        ):  # fmt: skip
            text = "x" * 1000
            house.write("c1", topic, *({"value": f'{{"n":{n},"text":"{text}"}}'} for n in range(2000)))
            house.write("c1", f"{topic}-avro", *({"value": AVRO} for _ in range(2000)))
            house.write("c1", f"{topic}-proto", *({"value": PROTOBUF} for _ in range(2000)))
            figures = await looked_at(process.pid, port, topic)
    for what, each in figures.items():
        print(f"{what}: resident {each.rss / 1e6:.1f} MB, the process's own {each.uss / 1e6:.1f} MB")
    assert figures["filters"].uss / 1e6 < MOST_MB, "with the library of CEL, and what reads left behind"
    *_, last = figures.values()
    assert (last.uss - figures["pages"].uss) / 1e6 < MOST_MORE_MB


async def looked_at(pid: int, port: int, topic: str) -> dict[str, Any]:
    """The memory of a console after each kind of look by ten viewers."""
    own = psutil.Process(pid)
    figures = {"started": own.memory_full_info()}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=CALL) as client:
        for what, path, expected in (
            ("pages", "/topics", ""),
            ("records", f"/records?topic={topic}", ""),
            ("filters", f"/records?topic={topic}&filter=value.n%20%3C%203", ""),
            ("Avro", f"/records?topic={topic}-avro&filter=value.n%20%3D%3D%205", "Avro, schema id"),
            ("Protobuf", f"/records?topic={topic}-proto&filter=value.n%20%3D%3D%205", "Protobuf, schema id"),
        ):
            for _ in range(ROUNDS * VIEWERS // AT_ONCE):
                for answer in await asyncio.gather(*[client.get(path) for _ in range(AT_ONCE)]):
                    assert answer.status_code == 200, answer.text
                    assert expected in answer.text
            figures[what] = own.memory_full_info()
    return figures


@contextlib.asynccontextmanager
async def console_process(
    console: Consoled, port: int, log: Path, **more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A console that has begun to serve."""
    settings = {
        "KAFKA_MESH_CONSOLE_LISTEN": f"127.0.0.1:{port}",
        "KAFKA_MESH_CONSOLE_METRICS_LISTEN": f"127.0.0.1:{port + 1}",
        "KAFKA_MESH_CONSOLE_CONTROL_ADDRESS": f"127.0.0.1:{console.world.control.port}",
        "KAFKA_MESH_CONSOLE_RPC_TLS_FOLDER": str(certificate_of(console.authority, "viewer", "console").folder),
        **{f"KAFKA_MESH_CONSOLE_{name}": value for name, value in more.items()},
    }
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.console", env=os.environ | settings, stderr=output
        )
    try:
        await until(lambda: is_ready(port + 1), "the console is ready")
        yield process
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), WITHIN)


async def is_ready(management: int) -> bool:
    async with httpx.AsyncClient(timeout=CALL) as client:
        with contextlib.suppress(httpx.TransportError):
            return (await client.get(f"http://127.0.0.1:{management}/ready")).status_code == 200
    return False


@contextlib.asynccontextmanager
async def viewer(url: str) -> AsyncIterator[None]:
    """Looks at pages, and keeps one open."""
    async with httpx.AsyncClient(base_url=url, timeout=CALL) as client:
        for _ in range(ROUNDS):
            for answer in await asyncio.gather(*map(client.get, PAGES)):
                assert answer.status_code == 200, answer.text
        async with client.stream("GET", "/live/status") as stream:
            assert stream.status_code == 200
            yield

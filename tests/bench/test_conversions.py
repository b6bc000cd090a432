"""What records of old clients cost: to convert them, and what is left of the event loop meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvloop

from mesh.compression import Codec
from services.gateway.downstream.conversions import Conversions
from services.gateway.requests.conversions import Convert
from services.gateway.wire.legacy.conversion import Stored, batches_of, message_sets_of
from services.gateway.wire.legacy.message_sets import write_message, write_wrapper
from services.gateway.wire.legacy.record import Group, Record
from tests.fixtures.waiting import until

BYTES = 2_000_000
SECONDS = 2.0
BESIDE = 2
"""Converters beside the event loop."""
Submit = Callable[[Callable[[Any], None]], None]


def message_set(count: int, size: int, codec: Codec) -> bytes:
    text = b'{"user": 12345, "name": "someone", "event": "clicked", "at": 1700000000} ' * (size // 70 + 1)
    records = [Record(n, 1_700_000_000_000 + n, b"k%d" % n, text[: size - 8] + b"%8d" % n) for n in range(count)]
    out = bytearray()
    if codec:
        write_wrapper(out, 1, Group(codec, False, iter(()), 0), records)
    else:
        for record in records:
            write_message(out, 1, record)
    return bytes(out)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4], ids=lambda codec: codec.name)
@pytest.mark.parametrize("size", [100, 1_000, 10_000])
def test_conversions(size: int, codec: Codec) -> None:
    old = message_set(BYTES // size, size, codec)
    began = time.perf_counter()
    (batch,) = batches_of((old,))
    up = time.perf_counter() - began
    assert isinstance(batch, bytes)
    began = time.perf_counter()
    message_sets_of((Stored(batch, 0, 2 * BYTES),), 1, 2 * BYTES)
    down = time.perf_counter() - began
    rates = (f"{way} {BYTES / took / 1e6:5.0f} MB/s" for way, took in (("up", up), ("down", down)))
    print(
        f"\nrecords of {size:6,} bytes, {codec.name:<6} {', '.join(rates)}; {up / (BYTES / size) * 1e6:.1f} us a record"
    )


@pytest.mark.parametrize("kind", ["nothing", "threads", "processes"])
def test_the_event_loop_beside_conversions(kind: str) -> None:
    """Round trips over a socket, while as many conversions go on as there is room for."""
    work = Convert(batches_of, ((message_set(1000, 1000, Codec.NONE),),))

    async def run() -> tuple[list[float], int]:
        loop = asyncio.get_running_loop()
        pool, threads = Conversions(BESIDE), ThreadPoolExecutor(BESIDE)

        def by_process(done: Callable[[Any], None]) -> None:
            pool.submit(work, done)

        def by_thread(done: Callable[[Any], None]) -> None:
            loop.run_in_executor(threads, work.function, *work.arguments).add_done_callback(done)

        submit: Submit = by_process if kind == "processes" else by_thread
        converted, going_on = 0, True

        def again(_: Any) -> None:
            nonlocal converted
            converted += 1
            if going_on:
                submit(again)

        for _ in range(0 if kind == "nothing" else BESIDE):
            submit(again)
        if kind != "nothing":
            await until(lambda: converted >= BESIDE, "the processes have started")
        began = converted
        found = await _round_trips()
        going_on, done = False, converted - began
        await pool.stop()
        await asyncio.to_thread(threads.shutdown)
        return found, done

    took, done = uvloop.run(run())
    took.sort()
    rate, slow = len(took) / SECONDS, 1e3 * took[len(took) * 99 // 100]
    converted = done * len(work.arguments[0][0]) / SECONDS / 1e6
    print(f"\nbeside {kind:<9} {rate:7,.0f} round trips a second, p99 {slow:5.2f} ms, {converted:4.0f} MB/s converted")


async def _round_trips() -> list[float]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    took: list[float] = []
    end = time.perf_counter() + SECONDS
    while (began := time.perf_counter()) < end:
        writer.write(b"x" * 100)
        await reader.readexactly(100)
        took.append(time.perf_counter() - began)
    writer.close()
    server.close()
    return took

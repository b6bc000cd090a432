"""How soon a backend is called for a record, and how many records it gets; starts all that it needs.

    python -m tests.bench.reactive_latency        (or: python tests/bench/reactive_latency.py)

1. Idle latency: one record at a time, with pauses; from its acknowledgement to the first byte of the call's body at the
   backend. Both are seen by this process.
2. Throughput with 1, 8 and 32 partitions of records of 100 B, in batches of 100, against a backend that takes 20 ms for
   each batch; CPU of the sidecar for 1,000 records, from the kernel's counters.

MESH_TEST_KAFKA_C1 (HOST:PORT) names a running broker; otherwise one is started. The last line is `p50=… ms p99=… ms`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.sidecar_under_kills import SidecarProcess
from tests.fixtures.waiting import wait_until

RECORDS = int(os.environ.get("MESH_BENCH_LATENCY_RECORDS", "500"))
SECONDS = float(os.environ.get("MESH_BENCH_REACTIVE_SECONDS", "8"))
PAUSE_S = 0.02
"""Between two records: long enough for all of the one before to be over."""
BATCH_S = 0.02
PARTITIONS = (1, 8, 32)
WITHIN_S = 120.0
PUBLISHED = (
    ("light-4j sidecar", "about 1.07 s end to end at idle", "timestamps in its documentation's audit sample"),
    (
        "Dapr 1.10, bulk publish",
        "38.1 ms for 100 records of 1 KiB, 144.2 ms one by one",
        "its pull request 5495; no push",
    ),
)


class Backend:
    """HTTP as cheap as Python has it, so that what is measured is the sidecar. On a thread of its own."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """That it takes for a batch."""
        self.records = 0
        self.called_at = 0.0
        self.called = threading.Event()
        self._loop = asyncio.new_event_loop()
        up = threading.Event()
        self.port = 0

        async def serve() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=4 * 1024 * 1024)
            self.port = server.sockets[0].getsockname()[1]
            up.set()
            await server.serve_forever()

        threading.Thread(target=lambda: self._loop.run_until_complete(serve()), daemon=True).start()
        assert up.wait(WITHIN_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.called_at = time.perf_counter()
                self.called.set()
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                records = json.loads(await reader.readexactly(length))
                if self.seconds:
                    await asyncio.sleep(self.seconds)
                body = b"[" + b",".join([b'{"processed":true}'] * len(records)) + b"]"
                self.records += len(records)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                )
                writer.write(body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@dataclass(frozen=True)
class Figures:
    """Of one run of throughput."""

    partitions: int
    rate: float
    cpu_ms: float


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    running = os.environ.get("MESH_TEST_KAFKA_C1")
    if running:
        yield running
        return
    cluster = KafkaCluster("bench", folder)
    cluster.start()
    try:
        yield cluster.bootstrap
    finally:
        cluster.stop()


@contextmanager
def reactive(folder: Path, bootstrap: str, backend: Backend, partitions: int) -> Iterator[tuple[str, psutil.Process]]:
    """A topic, and a sidecar that reads it."""
    topic = f"bench-reactive-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(WITHIN_S)
    place = folder / topic
    place.mkdir()
    sidecar = SidecarProcess(
        place, bootstrap, reactive_topics=topic, reactive_group=topic, value_format="string", log_level="WARNING",
        backend_url=f"http://127.0.0.1:{backend.port}", allow_insecure="true",
    )  # fmt: skip
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with sidecar.running():
        (process,) = (
            child
            for child in psutil.Process().children(recursive=True)
            if child.pid not in before and "services.sidecar" in child.cmdline()[-1]
        )
        wait_until(lambda: _is_read(bootstrap, topic, backend), "the first record is posted", WITHIN_S)
        yield topic, process
    for future in admin.delete_topics([topic]).values():
        future.result(WITHIN_S)


def _is_read(bootstrap: str, topic: str, backend: Backend) -> bool:
    backend.called.clear()
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"warm up")
    producer.flush(WITHIN_S)
    return backend.called.wait(5)


def idle_latency(folder: Path, bootstrap: str, backend: Backend) -> list[float]:
    """Milliseconds of each record, in their order by size."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    found: list[float] = []
    with reactive(folder, bootstrap, backend, 1) as (topic, _):
        for number in range(RECORDS + 20):
            time.sleep(PAUSE_S)
            backend.called.clear()
            acknowledged: list[float] = []
            producer.produce(topic, b"x" * 100, on_delivery=lambda *_: acknowledged.append(time.perf_counter()))  # noqa: B023
            while not acknowledged:
                producer.poll(1)
            assert backend.called.wait(WITHIN_S)
            if number >= 20:  # warm
                found.append(max(backend.called_at - acknowledged[0], 0.0) * 1000)
    return sorted(found)


def throughput(folder: Path, bootstrap: str, backend: Backend, partitions: int) -> Figures:
    """Of a topic that always has more than the backend takes."""
    backend.seconds = BATCH_S
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    with reactive(folder, bootstrap, backend, partitions) as (topic, process):
        for number in range(int(SECONDS * 1.5 * min(partitions * 5_000, 25_000))):
            producer.produce(topic, b"x" * 100, key=b"%d" % number, partition=number % partitions)
        producer.flush(WITHIN_S)
        began, first, used = time.perf_counter(), backend.records, sum(process.cpu_times()[:2])
        time.sleep(SECONDS)
        elapsed, records = time.perf_counter() - began, backend.records - first
        cpu = sum(process.cpu_times()[:2]) - used
    backend.seconds = 0.0
    return Figures(partitions, records / elapsed, cpu * 1_000_000 / max(records, 1))


def main() -> None:
    backend = Backend()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with broker(folder / "kafka") as bootstrap:
            latency = idle_latency(folder, bootstrap, backend)
            rows = [throughput(folder, bootstrap, backend, partitions) for partitions in PARTITIONS]
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| partitions | records/s | of what the backend can take | CPU of the sidecar, ms per 1,000 records |")
    print("| --- | --- | --- | --- |")
    for row in rows:
        share = row.rate / (row.partitions * 100 / BATCH_S)
        print(f"| {row.partitions} | {row.rate:,.0f} | {share:.0%} | {row.cpu_ms:.0f} |")
    print("| published by others | | |")
    print("| --- | --- | --- |")
    for peer, figure, source in PUBLISHED:
        print(f"| {peer} | {figure} | {source} |")
    print(f"p50={latency[len(latency) // 2]:.2f} ms p99={latency[int(len(latency) * 0.99)]:.2f} ms")


if __name__ == "__main__":
    main()

"""What a table of 100,000 topics costs a gateway: 20,000 rules, and the counted pasts of 80,000 other topics.

The gateway reads it whole, as its router sends it, and then deltas of one rule: CPU, memory, and how long the event
loop stands still, also for Python's collector and when another whole table takes the place of the first.

`MESH_BENCH_RULES` and `MESH_BENCH_PASTS` are how many there are.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, Stay, UpstreamCluster
from mesh.routing.codec import rule_to_proto
from mesh.routing.fold import with_changes
from mesh.routing.visits import Past
from mesh.rpc import discovery, events
from mesh.whole_files import replace_file
from services.gateway.downstream.received_tables import ReceivedTables, table_of
from services.gateway.serving import COLLECT_AFTER_OBJECTS, COLLECT_ALL_AFTER, COLLECT_YOUNG_AFTER
from services.router.discovery.member import Apply
from services.router.discovery.orders import OrderEncoder, OrderStream
from tests.bench.figures import Sheet, Table

RULES = int(os.environ.get("MESH_BENCH_RULES", "20000"))
PASTS = int(os.environ.get("MESH_BENCH_PASTS", "80000"))
CHANGES = 20
LOOK_UPS = 1_000
MIB = 1 << 20


@dataclass(slots=True)
class Watched:
    """What some work took."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    longest_ms: float = 0.0
    """The most CPU time that the event loop spent before it served others again: a busy machine does not count."""


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    found, gaps = Watched(), [0.0]

    async def others() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            gaps.append(time.thread_time() - before)

    serving = asyncio.create_task(others())
    await asyncio.sleep(0)
    began, used = time.perf_counter(), time.process_time()
    yield found
    found.seconds, found.cpu_s = time.perf_counter() - began, time.process_time() - used
    await asyncio.sleep(0)
    found.longest_ms = 1000 * max(gaps)
    serving.cancel()


def large_table() -> RoutingTable:
    clusters = [UpstreamCluster("c1", ("127.0.0.1:1",), 1)]
    rules = [ForwardingRule(f"r{n}", ExactName(f"orders.of-shop-{n}"), "c1") for n in range(RULES)]
    versions = [RuleVersion(rule, float(rank), 1) for rank, rule in enumerate(rules)]
    pasts = [Past(ExactName(f"earlier.of-shop-{n}"), 2, (Stay("c1", 1, ""),)) for n in range(PASTS)]
    return RoutingTable(3, clusters, versions, pasts)


def orders(folder: Path) -> list[Path]:
    """A table as a router sends it, and the deltas that follow: a folder of messages for each."""
    tables = [large_table()]
    for number in range(CHANGES):
        rule = ForwardingRule(f"new-{number}", ExactName(f"new-{number}"), "c1")
        change = events.RuleChange(created=rule_to_proto(rule), rank=0.5 + number / 1000)
        tables.append(with_changes(tables[-1], 4 + number, [change]))
    stream = OrderStream(OrderEncoder(), reads_deltas=True, reads_parts=True)
    return [_written(folder / str(number), [*stream.messages(Apply(table))]) for number, table in enumerate(tables)]


def _written(folder: Path, messages: list[bytes]) -> Path:
    folder.mkdir()
    for number, message in enumerate(messages):
        (folder / f"{number:04}.pb").write_bytes(message)
    return folder


@pytest.mark.timeout(300)
def test_a_table_of_very_many_topics(tmp_path: Path, sheet: Sheet) -> None:
    """In a process of its own, for the memory."""
    paths = orders(tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", "tests.bench.test_large_table", *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    head = ["what", "s", "CPU s", "longest stall, ms", "MB more"]
    title = f"A table of {RULES:,} rules and {PASTS:,} pasts in a gateway"
    sheet.add(Table(title, head, [line.split("\t") for line in run.stdout.splitlines()]))


async def _received(folder: Path, received: ReceivedTables) -> RoutingTable:
    """As `Discovery` carries out the orders."""
    for path in sorted(folder.iterdir()):  # noqa: ASYNC240
        order = discovery.WatchResponse.FromString(path.read_bytes())
        if order.HasField("part"):
            await received.part(order.part)
        else:
            table = await received.read(table_of(order))
        await asyncio.sleep(0)
    return table


async def _measure(folders: list[Path]) -> None:
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, COLLECT_YOUNG_AFTER, COLLECT_ALL_AFTER)
    process, received = psutil.Process(), ReceivedTables()
    memory = process.memory_info().rss

    def row(what: str, found: Watched) -> None:
        more = (process.memory_info().rss - memory) / MIB
        print(what, f"{found.seconds:.3f}", f"{found.cpu_s:.3f}", f"{found.longest_ms:.1f}", f"{more:.0f}", sep="\t")

    async with watched() as reading:
        table = await _received(folders[0], received)
    row("the whole table is read", reading)
    async with watched() as asking:
        for number in range(LOOK_UPS):
            assert table.route(f"orders.of-shop-{number}") is not None
            await asyncio.sleep(0)
    row(f"{LOOK_UPS:,} topics are looked up", asking)
    async with watched() as keeping:
        pieces = await received.encoded(table)
    row("it is made ready for the disk", keeping)
    async with watched() as writing:
        await asyncio.to_thread(replace_file, folders[0] / "table", *pieces)
    row("a thread writes it", writing)
    del pieces
    changes: list[Watched] = []
    for folder in folders[1:]:
        async with watched() as changing:
            table = await _received(folder, received)
            assert table.route("orders.of-shop-1") is not None
            await asyncio.sleep(0)
            await received.encoded(table)
        changes.append(changing)
    row("the first delta, until it is ready for the disk", changes[0])
    later = sorted(changes[1:], key=lambda each: each.longest_ms)
    row("later deltas, median", later[len(later) // 2])
    row("later deltas, the worst", later[-1])
    async with watched() as collecting:
        gc.collect()
        await asyncio.sleep(0)
    row("Python looks for cycles in all of it", collecting)
    (folders[0] / "table").unlink()
    async with watched() as replacing:
        table = await _received(folders[0], received)
        await received.encoded(table)
    row("another whole table takes its place", replacing)


if __name__ == "__main__":
    asyncio.run(_measure([Path(path) for path in sys.argv[1:]]))

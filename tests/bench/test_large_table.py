"""What a table of 100,000 topics costs a gateway: 20,000 rules, and the counted pasts of 80,000 other topics.

The gateway reads it whole, and then deltas of one rule: CPU, memory, and how long the event loop stands still.

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
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, Stay, UpstreamCluster
from mesh.routing.codec import rule_to_proto
from mesh.routing.delta import delta_between
from mesh.routing.fold import with_changes
from mesh.routing.table_bytes import TableBytes
from mesh.routing.visits import Past
from mesh.rpc import discovery, events, routing
from services.gateway.downstream.received_tables import ReceivedTables, table_of
from tests.bench.figures import Sheet, Table

RULES = int(os.environ.get("MESH_BENCH_RULES", "20000"))
PASTS = int(os.environ.get("MESH_BENCH_PASTS", "80000"))
CHANGES = 20
LOOK_UPS = 1_000
MIB = 1 << 20
COLLECT_AFTER_OBJECTS = 50_000
"""As the gateway's process sets it."""


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


def orders(folder: Path) -> list[Path]:
    """A table as a router sends it, and the deltas that follow."""
    clusters = [UpstreamCluster("c1", ("127.0.0.1:1",), 1)]
    rules = [ForwardingRule(f"r{n}", ExactName(f"orders.of-shop-{n}"), "c1") for n in range(RULES)]
    versions = [RuleVersion(rule, float(rank), 1) for rank, rule in enumerate(rules)]
    pasts = [Past(ExactName(f"earlier.of-shop-{n}"), 2, (Stay("c1", 1, ""),)) for n in range(PASTS)]
    tables = [RoutingTable(3, clusters, versions, pasts)]
    for number in range(CHANGES):
        rule = ForwardingRule(f"new-{number}", ExactName(f"new-{number}"), "c1")
        change = events.RuleChange(created=rule_to_proto(rule), rank=0.5 + number / 1000)
        tables.append(with_changes(tables[-1], 4 + number, [change]))
    encode = TableBytes()
    sent = [discovery.WatchResponse(apply=routing.RoutingTable.FromString(encode.of(tables[0])))]
    for before, after in pairwise(tables):
        delta = delta_between(before, after)
        assert delta is not None
        delta.base, delta.digest = encode.digest(before), encode.digest(after)
        sent.append(discovery.WatchResponse(apply_delta=delta))
    paths = [folder / f"{number}.pb" for number in range(len(sent))]
    for path, order in zip(paths, sent, strict=True):
        path.write_bytes(order.SerializeToString())
    return paths


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


async def _measure(paths: list[Path]) -> None:
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, 50, 50)
    process, received = psutil.Process(), ReceivedTables()
    memory = process.memory_info().rss

    def row(what: str, found: Watched) -> None:
        more = (process.memory_info().rss - memory) / MIB
        print(what, f"{found.seconds:.3f}", f"{found.cpu_s:.3f}", f"{found.longest_ms:.1f}", f"{more:.0f}", sep="\t")

    async with watched() as parsing:
        order = discovery.WatchResponse.FromString(paths[0].read_bytes())
    row("the message is parsed", parsing)
    async with watched() as reading:
        table = await received.read(table_of(order))
    row("the whole table is read", reading)
    del order
    async with watched() as asking:
        for number in range(LOOK_UPS):
            assert table.route(f"orders.of-shop-{number}") is not None
            await asyncio.sleep(0)
    row(f"{LOOK_UPS:,} topics are looked up", asking)
    async with watched() as keeping:
        await received.encoded(table)
    row("it is made ready for the disk", keeping)
    changes: list[Watched] = []
    for path in paths[1:]:
        async with watched() as changing:
            table = await received.read(table_of(discovery.WatchResponse.FromString(path.read_bytes())))
            assert table.route("orders.of-shop-1") is not None
            await asyncio.sleep(0)
            await received.encoded(table)
        changes.append(changing)
    row("the first delta, until it is ready for the disk", changes[0])
    later = sorted(changes[1:], key=lambda each: each.longest_ms)
    row("later deltas, median", later[len(later) // 2])
    row("later deltas, the worst", later[-1])


if __name__ == "__main__":
    asyncio.run(_measure([Path(path) for path in sys.argv[1:]]))

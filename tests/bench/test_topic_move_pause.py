"""How long producers wait when a topic moves with its records, to and fro: two gateways, routers and controls.

The pause that control tells lasts from the first hold to the switch on all gateways. The pause of a producer is its
longest time from a record to the record's acknowledgement during the move. Control's log has the steps of the pause.
`MESH_BENCH_MOVES` bounds the moves; `MESH_BENCH_RATE` is about how many records of 1 KB, in batches of
their own, each of two producers writes in a second; `MESH_BENCH_BUSY` how many processes keep cores busy meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.moves_under_faults import PROGRESS, check, moving

MOVES = int(os.environ.get("MESH_BENCH_MOVES", "24"))
BUSY = int(os.environ.get("MESH_BENCH_BUSY", "0"))
RATE = float(os.environ.get("MESH_BENCH_RATE", "100"))
RECORD_BYTES = 1000
MOVE_S = 2
"""Seconds of a producer's records that stand beside a move: the machine may be busy without one."""
STEPS = ("held_ms", "ends_ms", "positions_ms", "cut_ms", "stored_ms", "applied_ms")
"""Fields of control's log: `cut_ms` has in it what is before it, and that the cut is stored."""


@pytest.mark.timeout(1200)
async def test_the_pause_of_a_move(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    met: list[float] = []
    usual: list[float] = []
    names, wait_s = ["a" * RECORD_BYTES, "b" * RECORD_BYTES], 1 / RATE
    world = moving(postgres(), kafka_c1, kafka_c2, unique_name("moving"), tmp_path, random.Random(1), names, wait_s)
    async with world as run:
        with _busy():
            for number in range(MOVES):
                for writer in run.writers:
                    writer.longest_s = 0.0
                move = await run.moves.undisturbed("c1" if number % 2 else "c2")
                for writer in run.writers:
                    await writer.goes_on(PROGRESS)
                met.extend(1000 * writer.longest_s for writer in run.writers)
                print(f"{move.pause_ms} ms, {move.cuts_given_up} cuts given up: {move.problem}")
            for _ in range(MOVES):
                for writer in run.writers:
                    writer.longest_s = 0.0
                for writer in run.writers:
                    await writer.goes_on(int(MOVE_S * RATE))
                usual.extend(1000 * writer.longest_s for writer in run.writers)
        given_up = run.moves.given_up
        await run.end()
    owner, cluster = ("c1", kafka_c1) if MOVES % 2 == 0 else ("c2", kafka_c2)
    check(await Upstream(owner, cluster.bootstrap).read(run.topic), run.writers)
    spent = _steps(tmp_path)
    told = {
        "control tells": [float(each) for each in run.moves.pauses],
        "a producer met": met,
        "a producer met without a move": usual,
    }
    for name, values in {**told, **{step: spent[step] for step in STEPS}}.items():
        ordered = sorted(values)
        print(f"{name}: half {at(ordered, 0.5):.0f} ms, p99 {at(ordered, 0.99):.0f} ms, most {ordered[-1]:.0f} ms")
    print(
        f"{MOVES} moves, {given_up} cuts given up, {RATE:.0f} records/s, {BUSY} busy processes, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _steps(folder: Path) -> dict[str, list[float]]:
    """The milliseconds of each step, from the logs of both controls."""
    found: dict[str, list[float]] = defaultdict(list)
    for log in folder.glob("control-*.log"):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"a cut is reached"' in line or '"gateways have switched"' in line:
                told = json.loads(line)
                for step in STEPS:
                    if step in told and (step != "stored_ms" or "revision" in told):
                        found[step].append(told[step])
    return found


@contextmanager
def _busy() -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def at(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

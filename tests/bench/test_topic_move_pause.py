"""How long producers wait when a topic moves with its records, to and fro: two gateways, routers and controls.

The pause that control tells lasts from the first hold to the switch on all gateways. A producer meets the longest time
from a record to the record's acknowledgement, among the records that wait in this pause. The records of the same move
that do not wait in the pause count by themselves: before it the topic is copied, and behind it the certificate reads
both logs, on the same machine. As many records are written without a move: such a machine may be busy by itself.
Control's log has the steps of the pause.
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mesh import durations
from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.moves_under_faults import PROGRESS, check, moving
from tests.fixtures.writers import Wait

MOVES = int(os.environ.get("MESH_BENCH_MOVES", "24"))
BUSY = int(os.environ.get("MESH_BENCH_BUSY", "0"))
RATE = float(os.environ.get("MESH_BENCH_RATE", "100"))
RECORD_BYTES = 1000
OF_A_CUT = ("ends_ms", "positions_ms")
"""Fields of control's log ..."""
OF_A_SWITCH = ("held_ms", "cut_ms", "stored_ms", "applied_ms")
"""... that follow one another; `cut_ms` has in it those of the cut, and that the cut is stored."""


@pytest.mark.timeout(1200)
async def test_the_pause_of_a_move(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    moved: list[list[Wait]] = []
    usual: list[float] = []
    names, wait_s = ["a" * RECORD_BYTES, "b" * RECORD_BYTES], 1 / RATE
    world = moving(postgres(), kafka_c1, kafka_c2, unique_name("moving"), tmp_path, random.Random(1), names, wait_s)
    async with world as run:
        with _busy():
            for number in range(MOVES):
                for writer in run.writers:
                    writer.waits = []
                move = await run.moves.undisturbed("c1" if number % 2 else "c2")
                for writer in run.writers:
                    await writer.goes_on(PROGRESS)
                moved.extend(writer.waits for writer in run.writers)
                print(f"{durations.whole_ms(move.pause)} ms, {move.cuts_given_up} cuts given up: {move.problem}")
            for waits in moved[:: len(names)]:
                for writer in run.writers:
                    writer.waits = []
                for writer in run.writers:
                    await writer.goes_on(len(waits))
                usual.extend(_longest(writer.waits) for writer in run.writers)
        given_up = run.moves.given_up
        await run.end()
    owner, cluster = ("c1", kafka_c1) if MOVES % 2 == 0 else ("c2", kafka_c2)
    check(await Upstream(owner, cluster.bootstrap).read(run.topic), run.writers)
    spent = _steps(tmp_path)
    pauses = _pauses(tmp_path)
    assert len(pauses) == MOVES
    each_pause = [pause for pause in pauses for _ in names]
    told = {
        "control tells": [float(each) for each in run.moves.pauses],
        "a producer met in the pause": list(map(_in_pause, moved, each_pause)),
        "a producer met before the pause": list(map(_before, moved, each_pause)),
        "a producer met behind the pause": list(map(_behind, moved, each_pause)),
        "a producer met without a move": usual,
    }
    for name, values in {**told, **{step: spent[step] for step in (*OF_A_CUT, *OF_A_SWITCH)}}.items():
        ordered = sorted(values)
        print(f"{name}: half {at(ordered, 0.5):.0f} ms, p99 {at(ordered, 0.99):.0f} ms, most {ordered[-1]:.0f} ms")
    print(
        f"{MOVES} moves, {given_up} cuts given up, {RATE:.0f} records/s, {BUSY} busy processes, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _in_pause(waits: list[Wait], pause: Wait) -> float:
    return _longest(each for each in waits if each.since < pause.until and each.until > pause.since)


def _before(waits: list[Wait], pause: Wait) -> float:
    return _longest(each for each in waits if each.until <= pause.since)


def _behind(waits: list[Wait], pause: Wait) -> float:
    return _longest(each for each in waits if each.since >= pause.until)


def _longest(waits: Iterable[Wait]) -> float:
    return 1000 * max((each.seconds for each in waits), default=0.0)


def _pauses(folder: Path) -> list[Wait]:
    """From the first hold to the switch on all gateways, from the logs of both controls."""
    found: list[Wait] = []
    for told in _told(folder, "gateways have switched"):
        until = datetime.fromisoformat(str(told["timestamp"])).timestamp()
        found.append(Wait(until - sum(int(told[step]) for step in OF_A_SWITCH) / 1000, until))
    return sorted(found)


def _steps(folder: Path) -> dict[str, list[float]]:
    """The milliseconds of each step."""
    found: dict[str, list[float]] = defaultdict(list)
    for step in OF_A_CUT:
        found[step].extend(told[step] for told in _told(folder, "a cut is reached"))
    for step in OF_A_SWITCH:
        found[step].extend(told[step] for told in _told(folder, "gateways have switched"))
    return found


def _told(folder: Path, event: str) -> Iterator[dict[str, Any]]:
    """The lines about this event in the logs of both controls."""
    for log in folder.glob("control-*.log"):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if f'"{event}"' in line:
                yield json.loads(line)


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

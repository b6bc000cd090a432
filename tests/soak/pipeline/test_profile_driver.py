"""`run profile --order -` as serve starts it: the order on stdin, reports on stdout, and SIGTERM cancels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from mesh.rpc import replays
from services.pipeline.driver_protocol.orders import Order, report_from_line
from tests.fixtures.clusters import KafkaCluster
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import need_spark

RECORDS = 600
END_S = 300.0


@pytest.mark.timeout(900)
def test_an_order_is_carried_out_and_cancelled(kafka_c1: KafkaCluster, topic: str, tmp_path: Path) -> None:
    need_spark()
    orchard = Orchard(kafka_c1.bootstrap, topic)
    orchard.create()
    try:
        orchard.grow(RECORDS)
        order = order_of(topic, kafka_c1.bootstrap)
        with driver(order, tmp_path / "done.log") as process:
            reports = [report_from_line(line) for line in out(process)]
            assert process.wait(END_S) == 0
        assert reports[-1].state == replays.REPLAY_STATE_DONE, reports[-1].description
        assert [each.records for each in reports[-1].profiles] == [RECORDS]

        with driver(order, tmp_path / "cancelled.log") as process:
            plan = report_from_line(out(process).readline())
            assert plan.state == replays.REPLAY_STATE_RUNNING
            process.send_signal(signal.SIGTERM)  # Spark is just starting
            last = [report_from_line(line) for line in out(process)][-1]
            assert process.wait(END_S) == 0
        assert last.state == replays.REPLAY_STATE_CANCELLED
        assert not last.profiles
    finally:
        orchard.clear()


def order_of(topic: str, bootstrap: str) -> Order:
    spec = replays.ReplaySpec(ranges=[replays.ReplayRange(topic=topic)], profile=replays.ReplayToProfile())
    places = [replays.ReplayPlace(topic=topic, cluster="green", upstream_topic=topic)]
    replay = replays.Replay(name="replays/1", member="pipeline-1", spec=spec, places=places)
    return Order(replay, {"green": {"bootstrap.servers": bootstrap}})


@contextmanager
def driver(order: Order, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Its stdin stays open, as serve holds it."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.pipeline.driver", "run", "profile", "--order", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        assert process.stdin is not None
        process.stdin.write(order.to_line() + "\n")
        process.stdin.flush()
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(END_S)


def out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout

"""A replay's driver is killed with all its processes, five times in mid-copy, cancelled once, and goes on: the target
has each record once, and nothing of what was killed keeps its readers waiting.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.rpc import replays
from services.pipeline.driver_protocol.orders import Order, report_from_line
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.copies import SOURCE, TARGET, Grove, by_place, log_ends
from tests.integration.pipeline.orchard import Orchard
from tests.integration.pipeline.toolchain import need_spark

PARTITIONS = 6
RECORDS = 600_000
AT_ONCE = 50_000
KILLS = 5
RATE = 30_000.0
"""Records a second, at most: so that a fast machine is not done before it is killed."""
GAIN = RECORDS // 20
"""Records that a driver copies before it is killed: then it is in the midst of others."""
START_S = 180.0
END_S = 600.0


class Driver:
    """`kafka-mesh pipeline run replay --order -`, as a process group of its own."""

    def __init__(self, order: Order, log: Path) -> None:
        self._log = log
        self.reports: list[replays.ReportReplayRequest] = []
        self._records: dict[tuple[str, int], int] = {}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "services.pipeline", "run", "replay", "--order", "-"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                text=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(order.to_line() + "\n")
        self._process.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            report = report_from_line(line)
            self._records |= {(each.topic, each.partition): each.records for each in report.partitions}
            self.reports.append(report)

    @property
    def records(self) -> int:
        return sum(self._records.values())

    def wait_for(self, records: int) -> None:
        def has_come_so_far() -> bool:
            assert self._process.poll() is None, f"ended by itself:\n{self._log.read_text()[-3000:]}"
            return self.records >= records

        wait_until(has_come_so_far, f"{records} records are copied", START_S)

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_S)

    def cancel(self) -> None:
        self._process.terminate()

    def wait(self) -> replays.ReportReplayRequest:
        assert self._process.wait(END_S) == 0, self._log.read_text()[-3000:]
        wait_until(lambda: self.reports[-1].state != replays.REPLAY_STATE_RUNNING, "the end is reported")
        return self.reports[-1]


@pytest.fixture
def grove(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str) -> Iterator[Grove]:
    grove = Grove(kafka_c1.bootstrap, kafka_c2.bootstrap, topic)
    yield grove
    grove.clear()


@pytest.mark.timeout(1_800)
def test_killed_five_times_and_cancelled_once(grove: Grove, kafka_c1: KafkaCluster, tmp_path: Path) -> None:
    need_spark()
    orchard = Orchard(kafka_c1.bootstrap, grove.name)
    orchard.create(partitions=PARTITIONS)
    grove.create_target(PARTITIONS)
    try:
        orchard.transaction(1_000).abort_transaction()
        for _ in range(RECORDS // AT_ONCE):
            orchard.grow(AT_ONCE, partitions=range(PARTITIONS))
        order = grove.order(orchard.topic, rate=RATE)
        log = tmp_path / "driver.log"
        reached = 0
        for number in range(KILLS + 1):
            driver = Driver(order, log)
            driver.wait_for(reached + GAIN)
            if number < KILLS:
                driver.kill()
            else:
                driver.cancel()
                assert driver.wait().state == replays.REPLAY_STATE_CANCELLED
                assert driver.records < RECORDS
                assert_nothing_is_open(grove)
            reached = driver.records
            print(f"stopped at {reached} of {RECORDS}")
            orchard.grow(1_000, partitions=range(PARTITIONS))  # behind the end of the replay: none of its business
        began = time.monotonic()
        driver = Driver(order, log)
        end = driver.wait()
        print(f"the rest, from {reached}: {time.monotonic() - began:.1f} s; {end.description}")
        assert end.state == replays.REPLAY_STATE_DONE, end.description
        planned = {
            f"{SOURCE}/{place.topic}/{place.partition}/{place.offset}".encode(): content
            for place, content in list(orchard.records.items())[:RECORDS]
        }
        assert driver.records == RECORDS
        assert by_place(grove.copies()) == planned
        assert_ends_are_readable(grove)
        again = Driver(order, log)
        assert again.wait().state == replays.REPLAY_STATE_DONE
        assert len(grove.copies()) == RECORDS
    finally:
        orchard.clear()


def assert_nothing_is_open(grove: Grove) -> None:
    """What is committed can be read at once, up to the very end of each log."""
    began = time.monotonic()
    grove.copies()
    assert_ends_are_readable(grove)
    print(f"read back in {time.monotonic() - began:.1f} s")


def assert_ends_are_readable(grove: Grove) -> None:
    committed, written = (log_ends(grove.clusters[TARGET], grove.target, committed=each) for each in (True, False))
    assert committed == written, "a transaction is open"


@pytest.mark.timeout(900)
def test_hundreds_of_partitions_by_hand_killed_once(grove: Grove, kafka_c1: KafkaCluster, tmp_path: Path) -> None:
    need_spark()
    partitions, records = 200, 100_000
    orchard = Orchard(kafka_c1.bootstrap, grove.name)
    orchard.create(partitions=partitions)
    grove.create_target(partitions)
    clusters = [f"--cluster={name}={properties['bootstrap.servers']}" for name, properties in grove.clusters.items()]
    command = [
        sys.executable,
        "-m",
        "services.pipeline",
        "run",
        "replay",
        "--from",
        orchard.topic,
        "--to",
        grove.target,
    ]
    command += ["--source-cluster", SOURCE, "--target-cluster", TARGET, "--rate", "10000", *clusters]
    log = tmp_path / "driver.log"

    def start() -> subprocess.Popen[str]:
        with log.open("ab") as output:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, start_new_session=True, text=True)

    def is_copying() -> bool:
        assert first.poll() is None, log.read_text()[-3000:]
        return any(log_ends(grove.clusters[TARGET], grove.target).values())

    try:
        for _ in range(2):
            orchard.grow(records // 2, partitions=range(partitions))
        first = start()
        wait_until(is_copying, "something is copied", START_S)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(END_S)
        began = time.monotonic()
        said, _ = start().communicate(timeout=END_S)
        print(f"{partitions} partitions, the rest: {time.monotonic() - began:.1f} s: {said}")
        assert said.startswith(f"done: {records} records copied"), log.read_text()[-3000:]
        planned = {
            f"{SOURCE}/{place.topic}/{place.partition}/{place.offset}".encode(): content
            for place, content in orchard.records.items()
        }
        assert by_place(grove.copies()) == planned
    finally:
        orchard.clear()

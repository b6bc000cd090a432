"""Memory of jobs that go on: audit and traffic without an end, and a copy that takes as long, over
`MESH_SOAK_MINUTES` (20) of a steady load.

Of processes it is what is resident. Of the JVM it is what is left in its heap after a full collection, which is asked
for at each look (by a JDK's jcmd): by itself it lets the heap grow to its bound before it looks what of it is needed.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

from services.pipeline.spark.session import find_java
from tests.bench.pipeline.cost import audit_event
from tests.bench.pipeline.rates import plain
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.pipeline.emitters import Counter, report_of
from tests.integration.pipeline.toolchain import need_spark
from tests.soak.pipeline.killed_jobs import KilledJob

MINUTES = float(os.environ.get("MESH_SOAK_MINUTES", "20"))
EVENTS_PER_SECOND = 500
COPIED_PER_SECOND = 1_000
REPORTERS = 5
"""Each tells of a hundred counters in a second, ten times as often as it would."""
LOOK_S = 5.0
LOOKS_TO_COLLECTION = 6
JCMD_S = 30.0
AFTER_FULL = re.compile(r"Pause Full .*->(\d+)M")
KAFKA_S = 60.0
MAY_GROW = 1.10
SLACK_MB = 30
"""What a few buffers make of a process of 100 MB."""


@pytest.fixture
def topics(kafka_c1: KafkaCluster, topic: str) -> Iterator[dict[str, str]]:
    names = {each: f"{topic}-{each}" for each in ("audit", "traffic", "source", "copy")}
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    for future in admin.create_topics([NewTopic(name, 3, 1) for name in names.values()]).values():
        future.result(KAFKA_S)
    yield names
    for future in admin.delete_topics(list(names.values())).values():
        future.result(KAFKA_S)


@pytest.mark.timeout(MINUTES * 60 + 1_800)
def test_memory_stays_flat(
    kafka_c1: KafkaCluster, topics: dict[str, str], postgres: PostgresServer, tmp_path: Path
) -> None:
    need_spark()
    jcmd = find_java().with_name("jcmd")
    if not jcmd.exists():
        pytest.skip("a JDK's jcmd is not there, only a Java to run")
    url = postgres.migrated()
    home = ("--cluster", f"home={kafka_c1.bootstrap}")
    settings = {"DATABASE_URL": url, "MASTER": "local[2]"}
    load = Load(kafka_c1.bootstrap, topics)
    load.copied(int(COPIED_PER_SECOND * MINUTES * 60))
    with ExitStack() as running:

        def job(name: str, *arguments: str, **more: str) -> KilledJob:
            more["DRIVER_JAVA_OPTIONS"] = f"-Xlog:gc:file={tmp_path / name}.gc"
            started = KilledJob(tmp_path / f"{name}.log", name, *arguments, *home, **settings, **more)
            running.callback(started.kill)
            return started

        jobs = {
            "audit": job(
                "audit", "--continuous", "--to", str(tmp_path / "audit"),
                AUDIT_TOPICS=topics["audit"], AUDIT_HOME_TOPICS=f"{topics['audit']}-records",
                AUDIT_CALLS_TOPIC=f"{topics['audit']}-calls",
            ),
            "traffic": job("traffic", "--continuous", TRAFFIC_TOPIC=topics["traffic"]),
            "replay": job(
                "replay", "--from", topics["source"], "--to", topics["copy"], "--source-cluster", "home",
                "--rate", str(COPIED_PER_SECOND),
            ),
        }  # fmt: skip
        seen = watched(jobs, load, jcmd)
    for name in jobs:
        seen[name, "heap"] = [int(size) for size in AFTER_FULL.findall((tmp_path / f"{name}.gc").read_text())]
    print(drawn(seen))
    for (name, process), sizes in seen.items():
        assert len(sizes) > 8, f"{name} {process} was not there all the time"
        settled, last = _part(sizes, 2), _part(sizes, 4)
        assert last <= settled * MAY_GROW + SLACK_MB, f"{name} {process} grew from {settled} to {last} MB"


class Load:
    """What jobs have to do, at a steady rate."""

    def __init__(self, bootstrap: str, topics: dict[str, str]) -> None:
        self._topics = topics
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})
        self._events = self._reports = 0
        self._counters = [
            Counter(client=f"client-{number % 20}", topic=f"topic-{number}", latencies=(1.5, 7.0 + number)).to_proto()
            for number in range(100)
        ]

    def copied(self, count: int) -> None:
        """All that the copy has to do, before it begins."""
        for number in range(count):
            while True:
                try:
                    self._producer.produce(self._topics["source"], plain(number), partition=number % 3)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)
        self.flush()

    def of(self, seconds: float) -> None:
        """What comes in so much time."""
        for _ in range(int(EVENTS_PER_SECOND * seconds)):
            self._events += 1
            self._producer.produce(self._topics["audit"], audit_event(self._events), partition=self._events % 3)
        for _ in range(int(seconds)):
            for reporter in range(REPORTERS):
                self._reports += 1
                report = report_of(datetime.now(UTC), self._counters, f"gateway-{reporter}")
                key = f"gateway-{reporter}"
                self._producer.produce(self._topics["traffic"], report.SerializeToString(), key, partition=reporter % 3)
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(KAFKA_S) == 0


Sizes = dict[tuple[str, str], list[int]]
"""By job and process: MB, every `LOOK_S`."""


def watched(jobs: dict[str, KilledJob], load: Load, jcmd: Path) -> Sizes:
    """Looks at the jobs for as long as the test lasts."""
    seen: Sizes = defaultdict(list)
    looks = 0
    end = time.monotonic() + MINUTES * 60
    while time.monotonic() < end:
        began = time.monotonic()
        load.of(LOOK_S)
        looks += 1
        if looks % LOOKS_TO_COLLECTION == 0:
            collect(jcmd, jobs.values())
        for name, job in jobs.items():
            for process, size in resident_mb(job.pid).items():
                seen[name, process].append(size)
        time.sleep(max(0.0, LOOK_S - (time.monotonic() - began)))  # the load's pace, and no waiting
        for name in ("audit", "traffic"):
            assert jobs[name].runs, f"{name} has ended: {jobs[name].said}"
    return seen


def collect(jcmd: Path, jobs: Iterable[KilledJob]) -> None:
    """A full collection in the JVM of each job that still has one."""
    for job in jobs:
        with suppress(psutil.NoSuchProcess):
            for each in psutil.Process(job.pid).children(recursive=True):
                if each.name() == "java":
                    subprocess.run([jcmd, str(each.pid), "GC.run"], capture_output=True, timeout=JCMD_S, check=False)


def resident_mb(pid: int) -> dict[str, int]:
    """Of the driver, and of the Python workers together."""
    found: dict[str, int] = defaultdict(int)
    with suppress(psutil.NoSuchProcess):
        driver = psutil.Process(pid)
        for each in [driver, *driver.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                if each.name() != "java":
                    found["driver" if each.pid == pid else "workers"] += each.memory_info().rss >> 20
    return found


def _part(sizes: Sequence[int], quarter: int) -> float:
    """The middle of one quarter of the time: 1 to 4."""
    length = len(sizes) // 4
    return median(sizes[(quarter - 1) * length : quarter * length])


def drawn(seen: Sizes) -> str:
    """The middle of each of ten parts."""
    lines = []
    for (name, process), sizes in sorted(seen.items()):
        step = max(1, len(sizes) // 10)
        parts = [sizes[at : at + step] for at in range(0, len(sizes), step)]
        lines.append(f"{name:8} {process:8} MB: " + " ".join(f"{median(part):.0f}" for part in parts))
    return "\n".join(lines)

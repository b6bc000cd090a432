"""Kafka's own producer and consumer perf tools: one JVM a run, started as by their scripts; their figures as values."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from tests.clients import maven
from tests.clients.console.driver import KAFKA_VERSION, LOG_WARNINGS, PROJECT, Tool
from tests.fixtures.toolchains import need

JVM_OPTIONS = ("-server", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""Heap and collector of Kafka's scripts."""
RECORD_BYTES = 1024
MIB = 1024 * 1024
UNLIMITED = -1
RUN_TIMEOUT_S = 300.0
"""Only for a run that hangs: slow is a result."""

_PRODUCED = re.compile(
    r"^\d+ steady state records sent, [\d.]+ records/sec \((?P<rate>[\d.]+) MB/sec\), (?P<mean>[\d.]+) ms avg latency, "
    r".*?(?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Produced:
    """After the warm-up; the tool counts percentiles in whole milliseconds."""

    mib_per_s: float
    mean_ms: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Consumed:
    """Without the time that the group took to form."""

    mib_per_s: float
    join_ms: float


def produce(bootstrap: str, topic: str, records: int, warm_up: int, rate: int = UNLIMITED, **config: str) -> Produced:
    """Sends `records`, the first `warm_up` of them for warming up, with the producer's defaults but for `config`."""
    size = ["--num-records", str(records), "--warmup-records", str(warm_up), "--record-size", str(RECORD_BYTES)]
    options = [f"{name.replace('_', '.')}={value}" for name, value in config.items()]
    properties = ["--command-property", *options] if options else []
    printed = _run(Tool.PRODUCER_PERF_TEST, bootstrap, topic, *size, "--throughput", str(rate), *properties)
    found = _PRODUCED.search(printed)
    if found is None:
        raise RuntimeError(f"{Tool.PRODUCER_PERF_TEST} at {bootstrap} gave no figures:\n{printed[-2000:]}")
    return Produced(*(float(found[name]) for name in ("rate", "mean", "p50", "p99")))


def consume(bootstrap: str, topic: str, records: int) -> Consumed:
    """Reads so many records from the beginning, with the consumer's defaults."""
    printed = _run(Tool.CONSUMER_PERF_TEST, bootstrap, topic, "--num-records", str(records), "--hide-header")
    fields = printed.strip().splitlines()[-1].split(", ") if printed.strip() else []
    if len(fields) != 10 or int(fields[4]) < records:
        raise RuntimeError(f"{Tool.CONSUMER_PERF_TEST} at {bootstrap} did not read {records}:\n{printed[-2000:]}")
    return Consumed(mib_per_s=float(fields[8]), join_ms=float(fields[6]))


def _run(tool: Tool, bootstrap: str, topic: str, *options: str) -> str:
    java = [str(need("java")[0]), *JVM_OPTIONS, LOG_WARNINGS, "-cp", maven.class_path(PROJECT, KAFKA_VERSION)]
    run = subprocess.run(
        [*java, tool, "--bootstrap-server", bootstrap, "--topic", topic, *options],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    if run.returncode != 0:
        raise RuntimeError(f"{tool} at {bootstrap}: exit {run.returncode}\n{(run.stderr or run.stdout)[-2000:]}")
    return run.stdout

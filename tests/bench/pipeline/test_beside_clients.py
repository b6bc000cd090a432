"""What the pipeline takes of a newcomer's machine: `kafka-mesh up` with its default settings, 100,000 records through
the sidecar, and the same without the pipeline, in turns. CPU is each service's own, from the kernel's counters.
"""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

from local.layout import STATE_FOLDER
from tests.bench.figures import Sheet, Table, median, spread
from tests.bench.sidecar.load import closed_loop, produce_request
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.toolchain import need_spark

NOT_BY_THE_CLOCK = 3600
RECORDS = int(os.environ.get("MESH_BENCH_RECORDS", "100000"))
BATCH = 100
CONNECTIONS = 4
CAUGHT_UP_S = 900.0
KAFKA_S = 60.0
SERVICES = ("sidecar", "gateway", "kafka-c1", "postgres", "pipeline")


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_produce_and_consume_beside_the_pipeline(kafka_jars: None, sheet: Sheet, rounds: int, tmp_path: Path) -> None:
    need_spark()
    told: dict[str, dict[str, list[float]]] = {"without": {}, "with": {}, "until audit has caught up": {}}
    with running_mesh(tmp_path / STATE_FOLDER, "--pipeline") as mesh:
        one_round(mesh)  # not counted
        catch_up(mesh, RECORDS)
        for _ in range(rounds):
            mesh.stop("pipeline")
            note(told["without"], one_round(mesh))
            mesh.start("pipeline")
            catch_up(mesh, RECORDS)
            note(told["with"], one_round(mesh))
            note(told["until audit has caught up"], catch_up(mesh, 2 * RECORDS))
    columns = ["figure", *told]
    names = list(dict.fromkeys(name for figures in told.values() for name in figures))
    rows = [
        [name, *(spread(figures[name], 2) if name in figures else "-" for figures in told.values())] for name in names
    ]
    ratio = median(told["with"]["produce, s"]) / median(told["without"]["produce, s"])
    notes = [f"produce takes {ratio:.2f} times as long with the pipeline"]
    sheet.add(Table(f"Pipeline beside clients: {RECORDS:,} records through the sidecar", columns, rows, notes))


def one_round(mesh: Mesh) -> dict[str, float]:
    """Records are produced through the sidecar, and consumed through the gateway."""
    topic = f"apples-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": mesh.gateway})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(KAFKA_S)
    records = [{"key": f"key-{number}", "value": {"number": number, "text": "x" * 150}} for number in range(BATCH)]
    request = produce_request(topic, records)
    port = int(mesh.endpoints["sidecar"].rpartition(":")[2])
    before, began = cpu_s(mesh), time.monotonic()
    answered = closed_loop(port, request, connections=CONNECTIONS, requests=RECORDS // BATCH)
    produced = time.monotonic() - began
    consume(mesh.gateway, topic)
    consumed = time.monotonic() - began - produced
    spent = since(before, cpu_s(mesh))
    admin.delete_topics([topic])[topic].result(KAFKA_S)
    return {
        "produce, s": produced,
        "a batch, p50 ms": answered.percentile(0.5),
        "a batch, p99 ms": answered.percentile(0.99),
        "consume, s": consumed,
    } | spent


def catch_up(mesh: Mesh, total: int) -> dict[str, float]:
    """Until the audit has brought over `total` events since its serve started."""
    before, began = cpu_s(mesh), time.monotonic()
    wait_until(lambda: brought_over(mesh) >= total, "audit has caught up", CAUGHT_UP_S)
    return {"caught up, s": time.monotonic() - began} | since(before, cpu_s(mesh))


def brought_over(mesh: Mesh) -> float:
    with urllib.request.urlopen(mesh.metrics("pipeline"), timeout=KAFKA_S) as answer:
        lines = answer.read().decode().splitlines()
    name = 'kafka_mesh_pipeline_job_records_total{cluster="c1",job="audit"}'
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def consume(bootstrap: str, topic: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline, come = time.monotonic() + CAUGHT_UP_S, 0
    while come < RECORDS:
        assert time.monotonic() < deadline, f"{come} of {RECORDS} records came"
        come += sum(1 for message in consumer.consume(1_000, 1.0) if message.error() is None)
    consumer.close()


def cpu_s(mesh: Mesh) -> dict[str, float]:
    """Of each service, with what it has started; with what of that has ended, too."""
    spent: dict[str, float] = {}
    processes = mesh.processes()
    for name in SERVICES:
        pid, spent[name] = processes[name]["pid"], 0.0
        if pid is None:
            continue
        with suppress(psutil.Error):
            root = psutil.Process(pid)
            for each in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    times = each.cpu_times()
                    spent[name] += times.user + times.system + times.children_user + times.children_system
    return spent


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {f"CPU of {name}, s": now[name] - before[name] for name in SERVICES}


def note(told: dict[str, list[float]], figures: Mapping[str, float]) -> None:
    print(figures, flush=True)
    for name, value in figures.items():
        told.setdefault(name, []).append(value)

"""What jobs cost over 1, 3 and 10 million records: time, CPU, memory, size in PostgreSQL; as a table and as a drawing.

    python tests/bench/pipeline/cost.py --kafka 127.0.0.1:9092 --postgres postgresql://postgres@127.0.0.1/postgres

Each job is run as by hand, in a process of its own, over a topic of its own. The database is made for it and dropped.
Memory is that of all its processes together (the driver, the JVM, Python workers), at its peak; pages that they share
count for each. The drawing goes to build/pipeline-cost.svg, figures to build/pipeline-cost.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click
import psutil
import psycopg

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # it is a program, and no test

from services.control.store.migrate import migrate  # noqa: E402
from tests.bench.pipeline.drawing import Series, draw  # noqa: E402
from tests.bench.pipeline.rates import delete, plain, produce  # noqa: E402

MILLION = 1_000_000
LOOK_S = 0.5
BUILD = ROOT / "build"
SIZE = """
select coalesce(sum(pg_total_relation_size(inhrelid)), 0) from pg_inherits where inhparent = 'audit_events'::regclass
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one job over so many records."""

    job: str
    records: int
    seconds: float
    peak_mb: int
    cpu_s: float
    """Of its own processes; not PostgreSQL's, nor Kafka's."""
    database_mb: int | None = None


def audit_event(number: int) -> bytes:
    """As a sidecar writes it, of today: 300 B."""
    event = {
        "id": str(uuid.uuid4()), "serviceId": "shop-1", "auditType": "PRODUCER", "topic": "orders",
        "partition": number % 12, "offset": number, "key": f"key-{number % 5000}", "auditStatus": "SUCCESS",
        "correlationId": f"order-{number // 3}", "timestamp": int(time.time() * 1000) - number % 3_600_000,
    }  # fmt: skip
    return json.dumps(event).encode()


def run(arguments: list[str], settings: dict[str, str], log: Path) -> tuple[float, int, float]:
    """Seconds, MB at the peak, and seconds of CPU; a job that fails ends all."""
    environment = os.environ | {f"KAFKA_MESH_PIPELINE_{name}": value for name, value in settings.items()}
    began, peak = time.monotonic(), 0
    spent: dict[int, float] = {}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.pipeline", "run", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
            break
        peak = max(peak, _looked_at(process.pid, spent))
    if process.returncode:
        raise click.ClickException(
            f"{' '.join(arguments[:1])} ended with {process.returncode}: {log.read_text()[-2000:]}"
        )
    return time.monotonic() - began, peak, sum(spent.values())


def _looked_at(pid: int, spent: dict[int, float]) -> int:
    """MB of memory, of the process and all that it has started; what each has spent so far goes to `spent`."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for each in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += each.memory_info().rss
                times = each.cpu_times()
                spent[each.pid] = times.user + times.system
    return total >> 20


def cost_of_audit(kafka: str, postgres: str, records: int, folder: Path) -> Cost:
    name = f"mesh_cost_{uuid.uuid4().hex[:8]}"
    database = urlsplit(postgres)._replace(path=f"/{name}").geturl()
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(f'create database "{name}"'.encode())
        try:
            migrate(database)
            topic = produce(kafka, f"cost-audit-{uuid.uuid4().hex[:8]}", records, audit_event, lambda _: b"key")
            try:
                seconds, peak, cpu_s = run(
                    ["audit", "--to", str(folder / "audit"), "--cluster", f"c1={kafka}"],
                    {
                        "DATABASE_URL": database,
                        "AUDIT_TOPICS": topic.topic,
                        "AUDIT_HOME_TOPICS": f"{topic.topic}-own",  # and not those of a mesh that is there
                        "AUDIT_CALLS_TOPIC": f"{topic.topic}-calls",
                    },
                    folder / "audit.log",
                )
            finally:
                delete(topic)
            with psycopg.connect(database) as connection:
                row = connection.execute("select count(*) from audit_events").fetchone()
                if row != (records,):
                    raise click.ClickException(f"{row} rows in audit_events instead of {records}")
                size = connection.execute(SIZE.encode()).fetchone()
        finally:
            server.execute(f'drop database "{name}" with (force)'.encode())
    return Cost("audit", records, seconds, peak, cpu_s, int(size[0]) >> 20 if size else None)


def cost_of_replay(kafka: str, records: int, folder: Path) -> Cost:
    source = produce(kafka, f"cost-replay-{uuid.uuid4().hex[:8]}", records, plain, lambda number: b"key %d" % number)
    target = produce(kafka, f"{source.topic}-copy", 0, plain, plain)
    try:
        arguments = ["replay", "--from", source.topic, "--to", target.topic, "--source-cluster", "c1"]
        seconds, peak, cpu_s = run([*arguments, "--cluster", f"c1={kafka}"], {}, folder / "replay.log")
    finally:
        delete(source)
        delete(target)
    return Cost("replay", records, seconds, peak, cpu_s)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--kafka", required=True, metavar="HOST:PORT")
@click.option("--postgres", required=True, metavar="URL", help="Its user may create databases.")
@click.option("--millions", default="1,3,10", show_default=True)
@click.option("--jobs", default="audit,replay", show_default=True)
def main(kafka: str, postgres: str, millions: str, jobs: str) -> None:
    costs: list[Cost] = []
    BUILD.mkdir(exist_ok=True)
    for count in [int(float(each) * MILLION) for each in millions.split(",")]:
        for job in jobs.split(","):
            with tempfile.TemporaryDirectory(prefix="mesh-cost-") as folder:
                place = Path(folder)
                made = (
                    cost_of_audit(kafka, postgres, count, place)
                    if job == "audit"
                    else cost_of_replay(kafka, count, place)
                )
            costs.append(made)
            click.echo(json.dumps(asdict(made)))
            (BUILD / "pipeline-cost.json").write_text(json.dumps([asdict(each) for each in costs], indent=1))
    (BUILD / "pipeline-cost.svg").write_text(drawing_of(costs), encoding="utf-8")
    click.echo(f"drawn to {BUILD / 'pipeline-cost.svg'}")


def drawing_of(costs: list[Cost]) -> str:
    """Four charts: time, CPU, memory, size in PostgreSQL."""
    jobs = sorted({each.job for each in costs})

    def of(job: str, value: str) -> Series:
        return Series(
            job, [(each.records / MILLION, float(getattr(each, value) or 0)) for each in costs if each.job == job]
        )

    stored = [of(job, "database_mb") for job in jobs if any(each.job == job and each.database_mb for each in costs)]
    return draw(
        "million records",
        {
            "time, s": [of(job, "seconds") for job in jobs],
            "CPU of its own, s": [of(job, "cpu_s") for job in jobs],
            "memory at the peak, MB": [of(job, "peak_mb") for job in jobs],
            "PostgreSQL, MB": stored,
        },
    )


if __name__ == "__main__":
    main()

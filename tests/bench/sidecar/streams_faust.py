"""Faust's side of the comparison: counts records by key and writes each count, as a worker of its own process.

python streams_faust.py BOOTSTRAP SOURCE TARGET PARTITIONS FOLDER GUARANTEE
"""

from __future__ import annotations

import sys
from typing import Any

import faust

BOOTSTRAP, SOURCE, TARGET, PARTITIONS, FOLDER, GUARANTEE = sys.argv[1:7]

app: Any = faust.App(
    f"{SOURCE}-{GUARANTEE.replace('_', '-')}",
    broker=f"kafka://{BOOTSTRAP}",
    store="memory://",
    datadir=FOLDER,
    processing_guarantee=GUARANTEE,
    web_enabled=False,
    topic_partitions=int(PARTITIONS),
    topic_replication_factor=1,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=2.0,
    broker_request_timeout=20.0,
    broker_commit_interval=0.5,
    consumer_auto_offset_reset="earliest",
)
source = app.topic(SOURCE, value_serializer="raw", key_serializer="raw")
target = app.topic(TARGET, value_serializer="raw", key_serializer="raw")
counts = app.Table("counts", default=int, partitions=int(PARTITIONS))


@app.agent(source)  # type: ignore[untyped-decorator]  # it ships no types
async def count(stream: Any) -> None:
    async for event in stream.events():
        key = event.key
        name = key.decode()
        counts[name] += 1
        await target.send(key=key, value=str(counts[name]).encode())


if __name__ == "__main__":
    worker: Any = faust.Worker(app, loglevel="ERROR")
    worker.execute_from_commandline()

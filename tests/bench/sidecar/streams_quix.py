"""Quix Streams' side of the comparison: counts records by key and writes each count, as a process of its own.

python streams_quix.py BOOTSTRAP SOURCE TARGET FOLDER GUARANTEE

Quix Streams needs older releases of confluent-kafka and pydantic than the mesh, so it has an environment of its own.
"""

from __future__ import annotations

import sys

from quixstreams import Application, State

BOOTSTRAP, SOURCE, TARGET, FOLDER, GUARANTEE = sys.argv[1:6]


def counted(_: bytes, state: State) -> str:
    count = int(state.get("count", 0)) + 1
    state.set("count", count)
    return str(count)


def main() -> None:
    app = Application(
        broker_address=BOOTSTRAP,
        consumer_group=f"{SOURCE}-{GUARANTEE}",
        auto_offset_reset="earliest",
        processing_guarantee=GUARANTEE,
        state_dir=FOLDER,
        commit_interval=0.5,
        consumer_extra_config={"session.timeout.ms": 6000, "heartbeat.interval.ms": 2000},
        loglevel="WARNING",
    )
    source = app.topic(SOURCE, key_deserializer="bytes", value_deserializer="bytes")
    target = app.topic(TARGET, key_serializer="bytes", value_serializer="str")
    app.dataframe(source).apply(counted, stateful=True).to_topic(target)
    app.run()


if __name__ == "__main__":
    main()

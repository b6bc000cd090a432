"""Dead letters as they come to be, and jobs as an operator sees them."""

import time
from collections.abc import Mapping
from typing import Any

from services.sidecar.dead_letters.record import dead_letter
from services.sidecar.records import Outcome, RawRecord, Reason, Verdict
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import Json, Kafka, SidecarWorld

EXTENSION = ".dlq"
FIRST_TIME = time.time_ns() // 1_000_000 - 60_000
"""Not long ago: what is older than a topic keeps its records is deleted, be it that it was written just now."""


def fail(kafka: Kafka, topic: str, *records: Mapping[str, Any], reason: Reason = Reason.RETRIES) -> None:
    """Puts these among the dead letters of a topic, in its partition 0, as a reactive consumer does."""
    for offset, record in enumerate(records):
        raw = RawRecord(
            topic,
            record.get("partition", 0),
            record.get("offset", offset),
            record.get("timestamp", FIRST_TIME + offset),
            record.get("key"),
            record.get("value"),
            list(record.get("headers", ())),
        )
        verdict = Verdict(
            raw, Outcome.DEAD_LETTER, record.get("reason", reason), "boom", attempts=4, first_failure=FIRST_TIME
        )
        written = dead_letter(verdict, "shop", EXTENSION)
        letter = written.record
        kafka.write(
            written.topic,
            {
                "key": letter.key,
                "value": letter.value,
                "headers": letter.headers,
                "timestamp": letter.timestamp,
                "partition": 0,
            },
        )


def start(world: SidecarWorld, **body: object) -> Json:
    """A job as it begins."""
    answer = world.http.post("/adm/kafka/replay", json=body)
    assert answer.status_code == 202, answer.text
    job: Json = answer.json()
    return job


def job(world: SidecarWorld, id_: str) -> Json:
    answer = world.http.get(f"/adm/kafka/replay/{id_}")
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def ended(world: SidecarWorld, id_: str) -> Json:
    """A job when it has ended."""

    def look() -> Json | None:
        return next(
            (one for one in world.http.get("/adm/kafka/replay").json() if one["id"] == id_ and "ended" in one), None
        )

    found = wait_until(look, f"job {id_} ends")
    assert found is not None
    return found


def run(world: SidecarWorld, **body: object) -> Json:
    """A job from its beginning to its end."""
    return ended(world, start(world, **body)["id"])

"""A job whose sidecar is killed, again and again: the next process goes on, nothing is lost and nothing comes twice."""

import random
import time
import uuid
from pathlib import Path

import httpx
import pytest

from services.sidecar.dead_letters.record import dead_letter
from services.sidecar.records import Outcome, RawRecord, Reason, Verdict
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.sidecar_under_kills import SidecarProcess
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import Kafka

LETTERS = 400
KILLS = 3


@pytest.mark.soak
def test_dead_letters_go_back_once_each_whenever_their_sidecar_is_killed(
    kafka_c1: KafkaCluster, tmp_path: Path
) -> None:
    kafka, topic = Kafka(kafka_c1.bootstrap), f"kills-{uuid.uuid4().hex[:8]}"
    for name in (topic, f"{topic}.dlq"):
        kafka.create(name)
    now = time.time_ns() // 1_000_000
    letters = [
        dead_letter(
            Verdict(
                RawRecord(topic, 0, n, now, b"k%d" % n, b"%d" % n, []), Outcome.DEAD_LETTER, Reason.RETRIES, "boom"
            ),
            "shop",
            ".dlq",
        ).record
        for n in range(LETTERS)
    ]
    kafka.write(f"{topic}.dlq", *({"key": one.key, "value": one.value, "headers": one.headers} for one in letters))
    sidecar = SidecarProcess(tmp_path, kafka_c1.bootstrap, max_job_round_bytes="20")
    chance = random.Random(7)
    with sidecar.running(), httpx.Client(base_url=sidecar.address, timeout=30) as http:
        body = {"ranges": [{"topic": topic}], "deadLetters": True, "to": "source", "rate": 200}
        id_ = http.post("/adm/kafka/replay", json=body).raise_for_status().json()["id"]

        def records() -> int:
            return int(http.get(f"/adm/kafka/replay/{id_}").json().get("records", 0))

        reached = 0
        for _ in range(KILLS):
            wait_until(lambda: records() > reached, f"more than {reached} records are done", 60)  # noqa: B023
            time.sleep(chance.uniform(0, 0.1))  # the point of the kill, not a wait for something
            reached = records()
            sidecar.kill()
            sidecar.start()
        wait_until(lambda: "ended" in http.get(f"/adm/kafka/replay/{id_}").json(), "the job ends", 60)
        ended = http.get(f"/adm/kafka/replay/{id_}").json()
    assert (ended["state"], ended["records"]) == ("done", LETTERS)
    assert sorted(int(one.value or b"") for one in kafka.read(topic, None)) == list(range(LETTERS))

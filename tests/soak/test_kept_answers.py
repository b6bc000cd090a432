"""A sidecar that starts behind a million answers to requests with an Idempotency-Key (`MESH_ANSWERS`) keeps the newest,
and its memory is bounded by what it keeps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from services.sidecar.producing.idempotency import KeptAnswer
from tests.fixtures.clusters import KafkaCluster

ANSWERS = int(os.environ.get("MESH_ANSWERS", "1000000"))
KEPT = 10_000
"""The default of `idempotency_max_keys`."""
MOST_MIB = 160
"""64 MiB of them are the queue of librdkafka, by its default. All answers at once take some 4 GiB."""
WITHIN_S = 300.0
READ = f"""
import json, pathlib, re, sys
from services.sidecar.producing.idempotency import KeptAnswers
from services.sidecar.producing.transaction_log import TransactionLog

day = 86_400_000
kept = KeptAnswers(keep_ms=day, max_keys={KEPT}, max_bytes=100_000_000)
log = TransactionLog(sys.argv[2], {{"bootstrap.servers": sys.argv[1]}}, keep_ms=day)
read = 0

def peak_kib():
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

def take(key, answer):
    global read
    read += 1
    kept.keep(key, answer, answer.at_ms)

before = peak_kib()
log.read(take, {WITHIN_S})
grown = peak_kib() - before
newest = kept.find("key-{ANSWERS - 1}", 0)
print(json.dumps({{"read": read, "kept": len(kept), "newest": newest is not None, "grown_mib": grown / 1024}}))
"""


@pytest.mark.timeout(2 * WITHIN_S)
def test_a_start_behind_a_million_answers_keeps_the_newest_in_bounded_memory(
    kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("answers")
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap, "linger.ms": 50})
    answer = KeptAnswer("d" * 64, b'{"offsets": [{"partition": 0, "offset": 1}]}', int(time.time() * 1000)).encoded()
    for number in range(ANSWERS):
        producer.produce(topic, answer, f"key-{number}")
        if number % 10_000 == 0:
            producer.flush(WITHIN_S)
    assert producer.flush(WITHIN_S) == 0

    began = time.monotonic()
    command = [sys.executable, "-c", READ, kafka_c1.bootstrap, topic]
    ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=WITHIN_S, check=True)
    found = json.loads(ended.stdout.splitlines()[-1])

    print(
        f"{ANSWERS} answers were read in {time.monotonic() - began:.1f} s; memory grew by {found['grown_mib']:.0f} MiB"
    )
    assert (found["read"], found["kept"], found["newest"]) == (ANSWERS, KEPT, True)
    assert found["grown_mib"] < MOST_MIB

"""Questions to a cluster leave nothing behind: a job that goes on asks again and again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")

from services.pipeline.kafka.reader import read_logs
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.garbage import no_collector
from tests.fixtures.waiting import wait_until

TASKS = Path("/proc/self/task")


def threads() -> int:
    """Those of librdkafka too."""
    return sum(1 for _ in TASKS.iterdir()) - threading.active_count()


@pytest.mark.skipif(not TASKS.is_dir(), reason="threads are counted as Linux has them")
def test_who_asks_again_and_again_has_the_threads_of_one_client(kafka_c1: KafkaCluster) -> None:
    def ask() -> None:
        read_logs({"bootstrap.servers": kafka_c1.bootstrap}, ["no-such-topic"], 30.0, skip_absent=True)

    ask()
    with no_collector():
        before = threads()
        for _ in range(5):
            ask()
        wait_until(lambda: threads() <= before, "the threads of clients that nobody has any more are gone")

"""The page "Migrate from the light-4j sidecar": our sidecar takes the port and the files of the real original."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from local.readiness import HttpReady
from tests.bench.middles import running
from tests.bench.sidecar.ways import original_sidecar
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.meshes import BIN
from tests.fixtures.pages import ROOT, blocks, section_of
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_unless
from tests.integration.sidecar.world import Kafka

PAGE = ROOT / "docs" / "how-to" / "migrate-from-light-4j.md"
WITHIN_S = 60.0
pytestmark = [pytest.mark.timeout(400), pytest.mark.soak]  # the original is 179 MB


class Backend:
    """Calls whatever listens at the port, always in the same way."""

    def __init__(self, port: int, topic: str) -> None:
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WITHIN_S)
        self._topic = topic

    def produce(self, value: int) -> None:
        records = [{"key": "alice", "value": {"n": value}}]
        answer = self._http.post(f"/producers/{self._topic}", json={"records": records})
        assert answer.status_code == 200, answer.text

    def reads(self, group: str, count: int) -> list[int]:
        """The next values of the group. Its instance is made for this, and deleted."""
        made = self._http.post(
            f"/consumers/{group}",
            json={"name": "c1", "keyFormat": "STRING", "valueFormat": "JSON", "autoOffsetReset": "earliest"},
        )
        assert made.status_code == 200, made.text
        instance = f"/consumers/{group}/instances/c1"
        self._http.post(f"{instance}/subscriptions", json={"topics": [self._topic]}).raise_for_status()
        found: list[int] = []

        def obstacle() -> str | None:
            answer = self._http.get(f"{instance}/records")
            answer.raise_for_status()
            found.extend(int(each["value"]["n"]) for each in answer.json())
            return None if len(found) >= count else str(found)

        wait_unless(obstacle, f"{count} records are there", WITHIN_S)
        end = [
            {"topic": self._topic, "partition": 0, "offset": found[-1] - 1}
        ]  # of the last read record; values begin at 1
        committed = self._http.post(f"{instance}/offsets", json={"offsets": end})
        assert committed.is_success, committed.text
        self._http.delete(instance).raise_for_status()
        return found


def test_a_backend_does_not_notice_which_sidecar_answers(
    kafka_c1: KafkaCluster, topic: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kafka(kafka_c1.bootstrap).create(topic, 1)
    with original_sidecar(kafka_c1.bootstrap, tmp_path) as original:
        backend = Backend(original.port, topic)
        backend.produce(1)
        assert backend.reads(group, 1) == [1]
        backend.produce(2)

    (start,) = blocks(section_of(PAGE, "Steps"))
    config = tmp_path / "original" / "config"
    line = start.strip().replace(".venv/bin/", f"{BIN}/").replace(" config", f" {config}")
    environment = {
        "KAFKA_MESH_SIDECAR_METRICS_LISTEN": f"127.0.0.1:{(metrics := free_block(1))}",
        "KAFKA_MESH_SIDECAR_STATE_DIR": str(tmp_path / "state"),
        "KAFKA_MESH_SIDECAR_AUDIT_FILE": str(tmp_path / "audit.log"),
    }
    with running(line.split(), tmp_path / "ours.log", HttpReady(f"http://127.0.0.1:{metrics}/ready"), environment):
        backend = Backend(original.port, topic)
        assert backend.reads(group, 1) == [2], "the group goes on where it was"
        backend.produce(3)
        assert backend.reads(group, 1) == [3]

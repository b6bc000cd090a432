"""The story of the pipeline: a record goes through sidecar, gateway and backend, and control tells its whole life; its
topic is copied to the other cluster, cancelled half-way, and resumed: each record is there once. Meanwhile it is told
what they are like."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.backend import Backend
from tests.fixtures.meshes import BIN, Mesh
from tests.fixtures.record_rules import Copy, Side
from tests.fixtures.sidecar_under_kills import SidecarProcess
from tests.fixtures.waiting import wait_unless, wait_until

pytestmark = pytest.mark.timeout(600)

WITHIN_S = 180.0
"""A Spark of its own begins for each job, on a machine that has other things to do."""
SIDECAR, GATEWAY = "shop-1", "gateway-1"
RECORDS, PARTITIONS, CUSTOMERS = 600, 3, 7
SLOWLY = 60
"""Records a second: a cancel finds the copy half-way."""
SOURCE_HEADER = "mesh-replay-source"


class Shop:
    """A service with its sidecar, in a mesh that an operator looks after."""

    def __init__(self, mesh: Mesh, topic: str, sidecar: SidecarProcess, backend: Backend) -> None:
        self.mesh, self.topic = mesh, topic
        self._sidecar, self._backend = sidecar, backend
        self.source = Side("c1", mesh.cluster("c1"))
        self.target = Side("c2", mesh.cluster("c2"))

    def sells(self, count: int) -> None:
        """So many orders, each with an id of its own; the backend has all of them when it returns."""
        records = [
            {"key": f"customer-{n % CUSTOMERS}", "value": {"order": n}, "correlationId": f"order-{n}"}
            for n in range(count)
        ]
        answer = httpx.post(
            f"{self._sidecar.address}/producers/{self.topic}",
            json={"keyFormat": "string", "valueFormat": "json", "records": records},
            timeout=WITHIN_S,
        )
        assert answer.status_code == 200, answer.text
        self._backend.wait_for_records(count, WITHIN_S)

    def trail(self, correlation_id: str) -> list[tuple[str, str, str]]:
        """What control tells of a record: who had it, as what, how that ended."""
        told = json.loads(self.mesh.meshctl("audit", "trail", "--correlation-id", correlation_id, "-o", "json").stdout)
        return sorted((each["service_id"], each["audit_type"], each["audit_status"]) for each in told["events"])

    def profile(self) -> dict[str, Any]:
        """What a pipeline finds when it looks at the records."""
        command = [str(BIN / "meshctl"), "topic", "profile", self.topic, "-o", "json"]
        where = self.mesh.state.parent
        run = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert run.returncode == 0, run.stderr
        told: dict[str, Any] = json.loads(run.stdout)
        return told

    def replay(self, name: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.mesh.meshctl("replay", "show", name, "-o", "json").stdout)
        return told

    def begins(self, *arguments: str) -> str:
        """The name of the replay that a command begins."""
        name: str = json.loads(self.mesh.meshctl("replay", *arguments, "-o", "json").stdout)["name"]
        return name

    def copies(self, topic: str) -> list[Copy]:
        """Those that are committed by now."""
        return self.target.read(topic) if self.target.partitions(topic) else []

    def ends(self, name: str, state: str) -> None:
        def obstacle() -> str | None:
            found = self.replay(name)
            return None if found["state"] == state else f"{found['state']}: {found.get('description', '')}"

        wait_unless(obstacle, f"{name} ends as {state}", WITHIN_S)


@pytest.fixture
def shop(spark_mesh: Mesh, apples: str, group: str, tmp_path: Path) -> Iterator[Shop]:
    with Backend().running() as backend:
        sidecar = SidecarProcess(
            tmp_path,
            spark_mesh.gateway,
            name=SIDECAR,
            control_addresses=spark_mesh.control,
            rpc_tls_folder=spark_mesh.certificate("sidecar", SIDECAR),
            reactive_topics=apples,
            reactive_group=group,
            backend_url=backend.host_url,
            audit_target="topic",
        )
        made = Shop(spark_mesh, apples, sidecar, backend)
        made.source.create(apples, PARTITIONS)
        with sidecar.running():
            yield made


def test_a_records_life_is_told_and_its_topic_copied_cancelled_and_resumed(shop: Shop) -> None:
    shop.sells(RECORDS)

    # who had it, from the table that the pipeline fills
    life = [
        (GATEWAY, "PRODUCER", "SUCCESS"),
        (SIDECAR, "PRODUCER", "SUCCESS"),
        (SIDECAR, "REACTIVE_CONSUMER", "SUCCESS"),
    ]
    for order in (0, RECORDS - 1):
        wait_unless(
            lambda id_=f"order-{order}": None if (told := shop.trail(id_)) == life else f"so far {told}",  # type: ignore[misc]
            f"the life of order {order}",
            WITHIN_S,
        )

    # copied to the other cluster, slowly, and cancelled half-way
    copied = shop.target.create(f"{shop.topic}-again", PARTITIONS)
    to_there = ("--from", shop.topic, "--to", copied, "--to-cluster", "c2")
    first = shop.begins("copy", *to_there, "--rate", str(SLOWLY), "--reason", "a second look")
    wait_until(lambda: shop.copies(copied), "the copy has begun", WITHIN_S)
    shop.mesh.meshctl("replay", "cancel", first, "--reason", "not today")
    shop.ends(first, "REPLAY_STATE_CANCELLED")
    half = shop.copies(copied)
    assert 0 < len(half) < RECORDS

    # resumed, it goes on there: each record once, in its order, as it was
    second = shop.begins("resume", first)
    profile = shop.profile()  # by a driver of its own, beside the one that copies
    assert (profile["records"], profile["formats"]) == (str(RECORDS), {"json": str(RECORDS)})
    assert (profile["distinct_keys"], profile["null_keys"]) == (str(CUSTOMERS), "0")
    assert [(each["path"], each["types"]) for each in profile["fields"]] == [("order", {"integer": str(RECORDS)})]
    shop.ends(second, "REPLAY_STATE_DONE")
    originals, copies = shop.source.read(shop.topic), shop.copies(copied)
    assert len(copies) == len(originals) == RECORDS
    assert [each for each in copies if each in half] == half, "what was copied before stayed as it was"
    for original, copy in zip(originals, copies, strict=True):
        headers = dict(copy.headers)
        assert headers.pop(SOURCE_HEADER) == f"c1/{shop.topic}/{original.partition}/{original.offset}".encode()
        assert (copy.partition, copy.key, copy.value) == (original.partition, original.key, original.value)
        assert copy.timestamp == original.timestamp
        assert headers == dict(original.headers)

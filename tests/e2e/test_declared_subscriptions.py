"""A subscription that an operator declares in a whole mesh runs at two sidecars, also without control and router."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.fixtures.backend import Backend
from tests.fixtures.meshes import Mesh
from tests.fixtures.record_rules import Side
from tests.fixtures.sidecar_under_kills import SidecarProcess
from tests.fixtures.waiting import wait_unless

pytestmark = pytest.mark.timeout(420)

WITHIN_S = 60.0
SHOPS = ("shop-1", "shop-2")
OURS = ("sidecars", "subscriptions")


class Shops:
    """Two sidecars of one service in a mesh of their own, and their backend."""

    def __init__(self, mesh: Mesh, topic: str, folder: Path, backend: Backend) -> None:
        self.mesh, self.topic, self.backend = mesh, topic, backend
        self.sidecars = {name: self._made(name, folder / name) for name in SHOPS}
        self._produced = 0

    def _made(self, name: str, folder: Path) -> SidecarProcess:
        folder.mkdir()
        return SidecarProcess(
            folder,
            self.mesh.gateway,
            name=name,
            control_addresses=self.mesh.control,
            rpc_tls_folder=self.mesh.certificate("sidecar", name),
            backend_url=self.backend.host_url,
            restore_timeout_ms="500",
        )

    def operator(self, *arguments: str) -> str:
        return self.mesh.meshctl(*OURS, *arguments).stdout

    def runs_at(self, *sidecars: str) -> None:
        """Returns when control hears that exactly these run the subscription."""

        def obstacle() -> str | None:
            reports = json.loads(self.operator("list", "-o", "json"))["reports"]
            states = {each["sidecar"]: each["state"] for each in reports if not each["problem"]}
            return None if states == dict.fromkeys(sidecars, "SUBSCRIPTION_STATE_RUNNING") else f"so far {reports}"

        wait_unless(obstacle, f"it runs at {sidecars}", WITHIN_S)

    def comes(self, count: int, by: str = "shop-1") -> None:
        """Produces so many records through a sidecar; returns when the backend has them all."""
        numbers = range(self._produced, self._produced + count)
        self._produced += count
        records = [{"key": f"k{n}", "value": n} for n in numbers]
        answer = httpx.post(
            f"{self.sidecars[by].address}/producers/{self.topic}",
            json={"keyFormat": "string", "valueFormat": "json", "records": records},
            timeout=WITHIN_S,
        )
        assert answer.status_code == 200, answer.text

        def obstacle() -> str | None:
            got = {record["value"] for record in self.backend.records}
            return None if got >= set(range(self._produced)) else f"{len(got)} of {self._produced} so far"

        wait_unless(obstacle, "the backend has all records", WITHIN_S)

    def are_in_lineage(self) -> None:
        """Both sidecars are one application, which reads for the group, and has one backend."""
        shop = "User:ANONYMOUS/shop"
        wanted = {(self.topic, "shops"), ("shops", shop), (shop, "shop"), (shop, self.topic)}

        def obstacle() -> str | None:
            run = self.mesh.meshctl("lineage", "topic", self.topic, "-o", "json", check=False)
            if run.returncode:
                return run.stderr
            edges = json.loads(run.stdout)["edges"]
            ways = {(each["source"]["name"], each["target"]["name"]) for each in edges}
            return None if ways == wanted else f"so far {ways}"

        wait_unless(obstacle, "lineage has the sidecars and their backend", WITHIN_S)


@pytest.fixture
def shops(own_mesh: Mesh, tmp_path: Path, unique_name: Callable[[str], str]) -> Iterator[Shops]:
    mesh, topic = own_mesh, unique_name("apples")
    Side("c1", mesh.cluster("c1")).create(topic)
    with Backend().running() as backend, ExitStack() as running:
        made = Shops(mesh, topic, tmp_path, backend)
        for sidecar in made.sidecars.values():
            running.enter_context(sidecar.running())
        yield made


def test_it_is_declared_runs_on_without_control_and_router_and_ends(shops: Shops) -> None:
    mesh = shops.mesh
    reads = ("--topic", shops.topic, "--group", "shops", "--path", "/apples", "--value-format", "json")
    said = shops.operator("add", "apples", "--sidecar", "shop-*", *reads, "--set", "autoOffsetReset=earliest")
    assert "is declared for shop-*" in said
    shops.runs_at(*SHOPS)
    shops.comes(20)
    assert {call.path for call in shops.backend.calls} == {"/apples"}

    shops.are_in_lineage()
    mesh.kill("control")
    mesh.kill("router")
    for sidecar in shops.sidecars.values():
        sidecar.kill()
        sidecar.start()
    shops.comes(20, "shop-2")

    shops.sidecars["shop-2"].stop()  # away when it is withdrawn
    mesh.start("router")
    mesh.start("control")
    assert "is withdrawn" in shops.operator("remove", "apples", "--reason", "a test")
    shops.runs_at()
    shops.sidecars["shop-2"].start()
    shops.runs_at()

    def obstacle() -> str | None:
        found = {}
        for name, sidecar in shops.sidecars.items():
            found[name] = httpx.get(f"{sidecar.address}/adm/kafka/subscriptions", timeout=WITHIN_S).json()
        return None if not any(found.values()) else str(found)

    wait_unless(obstacle, "no sidecar has it any more", WITHIN_S)
    told = mesh.meshctl("history", "--subscription", "apples").stdout
    assert f"subscription apples declared for sidecars shop-*: {shops.topic}" in told
    assert "subscription apples withdrawn" in told

"""The process: how it starts, refuses to start, and stops."""

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import httpx

from services.sidecar.state.claim import Claim, Incarnation
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.processes import process
from tests.integration.sidecar.world import NOWHERE, WITHIN_SECONDS, Instance, Kafka


def plain(port: int, **settings: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process that listens on `port`."""
    return process(port, settings={"listen": f"127.0.0.1:{port}", "health_timeout_ms": "500", **settings})


def page(url: str) -> str:
    """The text of a page; empty while nobody answers."""
    try:
        return httpx.get(url).text
    except httpx.TransportError:
        return ""


def test_a_signal_ends_it_in_order_while_a_read_waits(kafka: Kafka, orders: str, group: str) -> None:
    port = free_block(2)
    address = f"http://127.0.0.1:{port}"
    with plain(port, bootstrap_servers=kafka.bootstrap) as running:
        wait_until(lambda: page(f"http://127.0.0.1:{port + 1}/ready") == "ready\n", "it is ready")
        with httpx.Client(base_url=address, timeout=WITHIN_SECONDS) as http, ThreadPoolExecutor() as pool:
            http.post(f"/consumers/{group}", json={"name": "c1", "requestWaitMs": 30_000})
            instance = Instance(http, f"/consumers/{group}/instances/c1")
            instance.subscribe(orders)
            instance.join(partitions=2)
            read = pool.submit(instance.get)
            open_requests = "kafka_mesh_sidecar_open_requests 1.0"
            wait_until(lambda: open_requests in page(f"http://127.0.0.1:{port + 1}/metrics"), "the read waits")
            running.send_signal(signal.SIGTERM)
            assert (read.result().status_code, read.result().json()) == (200, [])
        assert running.wait(WITHIN_SECONDS) == 0


def test_without_kafka_it_lives_and_is_not_ready() -> None:
    port = free_block(2)
    management = f"http://127.0.0.1:{port + 1}"
    with plain(port, bootstrap_servers=NOWHERE) as running:
        wait_until(lambda: "Kafka does not answer" in page(f"{management}/ready"), "it says why it is not ready")
        assert page(f"http://127.0.0.1:{port}/health/liveness") == "OK"
        running.send_signal(signal.SIGTERM)
        assert running.wait(WITHIN_SECONDS) == 0


def test_it_does_not_start_on_an_address_that_others_reach() -> None:
    with plain(free_block(2), listen="0.0.0.0:8084") as running:
        assert running.wait(WITHIN_SECONDS) == 2
        assert running.stderr is not None
        assert "allow_insecure" in running.stderr.read()


def test_a_taken_port_is_named() -> None:
    port = free_block(3)
    with plain(port, bootstrap_servers=NOWHERE):
        wait_until(lambda: page(f"http://127.0.0.1:{port}/health/liveness"), "the first one is up")
        with plain(port, metrics_listen=f"127.0.0.1:{port + 2}", bootstrap_servers=NOWHERE) as second:
            assert second.wait(WITHIN_SECONDS) == 1
            assert second.stderr is not None
            assert f"cannot listen on 127.0.0.1:{port}" in second.stderr.read()


def test_an_operator_reads_its_log_lines_and_ends_it(kafka: Kafka) -> None:
    port = free_block(2)
    with plain(port, bootstrap_servers=kafka.bootstrap) as running:
        wait_until(lambda: page(f"http://127.0.0.1:{port + 1}/ready") == "ready\n", "it is ready")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WITHIN_SECONDS) as http:
            exchange = "services.sidecar.api.exchange"
            assert http.post("/adm/logger", json=[{"name": exchange, "level": "DEBUG"}]).status_code == 200
            http.get("/health", headers={"X-Correlation-Id": "look-for-me", "X-Traceability-Id": "t-1"})
            query = {"loggerName": exchange, "loggerLevel": "DEBUG"}
            lines = http.get("/adm/logger/content", params=query).json()[exchange]["logs"]
            assert [line["tId"] for line in lines if line["cId"] == "look-for-me"] == ["t-1"]

            answer = http.request("DELETE", "/adm/shutdown")
            assert answer.json().keys() == {"time", "serviceId", "tag"}
        assert running.wait(WITHIN_SECONDS) == 0


def test_a_state_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with plain(free_block(2), bootstrap_servers=NOWHERE, state_dir=str(tmp_path / "taken")) as running:
        assert running.wait(WITHIN_SECONDS) == 1
        assert running.stderr is not None
        assert f"cannot keep instances in {tmp_path / 'taken'} (state_dir)" in running.stderr.read()


def test_nobody_is_served_before_the_instances_are_back(kafka: Kafka, tmp_path: Path) -> None:
    """Here because another process of the name does not give way yet."""
    port = free_block(2)
    elder = Claim(tmp_path / "sidecar-1", Incarnation(1, "elder"))
    elder.stake()
    assert elder.lock()
    settings = {"state_dir": str(tmp_path), "takeover_timeout_ms": "60000", "name": "sidecar-1"}
    with plain(port, bootstrap_servers=kafka.bootstrap, **settings):
        wait_until(lambda: page(f"http://127.0.0.1:{port + 1}/ready") == "starting\n", "it starts")
        wait_until(elder.is_lost, "it claims the folder")
        assert page(f"http://127.0.0.1:{port}/health/liveness") == ""
        elder.let_go()
        wait_until(lambda: page(f"http://127.0.0.1:{port + 1}/ready") == "ready\n", "it is ready")

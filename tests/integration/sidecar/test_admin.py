"""What operators ask of one sidecar over HTTP, on its own port, beside a backend that is asked too."""

import http.server
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from prometheus_client import REGISTRY

from services.sidecar.admin import log_levels
from services.sidecar.admin.backend_loggers import BackendFramework, BackendLoggers, LoggerLevel
from services.sidecar.faults import Fault
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import WITHIN_SECONDS, Json, Kafka, SidecarWorld, started

LATENCY = "com.networknt.chaos.LatencyAssaultHandler"
EXCEPTION = "com.networknt.chaos.ExceptionAssaultHandler"


@dataclass
class Backend:
    """Stands for a light-4j backend with loggers and health, and for an InfluxDB: plain HTTP, as they speak it."""

    loggers: list[Json] = field(default_factory=lambda: [{"name": "ROOT", "level": "WARN"}])
    health: int = 200
    pushed: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    address: str = ""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        self.asked.append(f"{method} {path}")
        match method, path.partition("?")[0]:
            case "GET", "/health":
                return self.health, "OK"
            case "GET", "/adm/logger":
                return 200, self.loggers
            case "POST", "/adm/logger":
                self.loggers = json.loads(body)
                return 200, self.loggers
            case "POST", spring if spring.startswith("/actuator/"):
                return 204, None
            case "POST", "/api/v2/write":
                self.pushed.append(body.decode())
                return 204, None
            case _:
                return 404, None


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    backend = Backend()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content = backend.answer(self.command, self.path, body)
            text = b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _answer  # noqa: N815  # names that the base class gives them

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    backend.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield backend
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def world(kafka_c1: KafkaCluster, backend: Backend) -> Iterator[SidecarWorld]:
    settings = {
        "admin_listen": "127.0.0.1:0",
        "chaos_monkey_enabled": True,
        "logging_downstream_enabled": True,
        "downstream_host": backend.address,
        "health_downstream_enabled": True,
        "health_json": True,
        "influx_url": f"{backend.address}/api/v2/write?org=o&bucket=b",
        "influx_interval_ms": 100,
        "influx_token": "t0p-secret",
        "schema_registry_url": f"{backend.address}/registry",
        "statistics_interval_ms": 100,
    }
    with started(kafka_c1.bootstrap, **settings) as world:
        yield world


@pytest.fixture(scope="module")
def admin(world: SidecarWorld) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{world.sidecar.admin_port}", timeout=WITHIN_SECONDS) as client:
        yield client


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Loggers of this process are as they were afterwards."""
    before = log_levels.levels()
    yield
    for name in log_levels.levels().keys() - before.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    log_levels.set_levels(before)


def test_management_is_served_on_its_own_port_and_nowhere_else(world: SidecarWorld, admin: httpx.Client) -> None:
    assert admin.get("/adm/server/info").status_code == 200
    assert admin.get("/health").status_code == 200
    assert "openapi" in admin.get("/spec.yaml").text
    for elsewhere in (world.http.base_url.join("/adm/server/info"), admin.base_url.join("/consumers/g/instances/c")):
        refused = httpx.get(elsewhere, timeout=WITHIN_SECONDS)
        assert (refused.status_code, refused.json()["code"]) == (404, "ERR10048")


def test_information_says_what_runs_and_masks_secrets(admin: httpx.Client) -> None:
    found = admin.get("/adm/server/info")
    shown = found.json()
    assert shown["component"]["sidecar"]["name"] == "sidecar-test"
    assert shown["component"]["sidecar"]["influx_token"] == "*"
    assert "t0p-secret" not in found.text
    assert {"deployment", "environment", "security"} <= shown.keys()


def test_loggers_are_read_and_set(admin: httpx.Client) -> None:
    answer = admin.post("/adm/logger", json=[{"name": "librdkafka", "level": "DEBUG"}])
    assert (answer.status_code, answer.json()) == (200, [{"name": "librdkafka", "level": "DEBUG"}])
    assert {"name": "librdkafka", "level": "DEBUG"} in admin.get("/adm/logger").json()
    assert logging.getLogger("librdkafka").level == logging.DEBUG

    refused = admin.post("/adm/logger", json=[{"name": "librdkafka", "level": "LOUD"}])
    assert (refused.status_code, refused.json()["code"]) == (400, "ERR11004")
    assert "LOUD" in refused.json()["description"]
    assert admin.post("/adm/logger").json()["code"] == "ERR10059"


def test_calls_on_loggers_go_on_to_the_backend(admin: httpx.Client, backend: Backend) -> None:
    through = {"X-Adm-PassThrough": "true"}
    assert admin.get("/adm/logger", headers=through).json() == [{"name": "ROOT", "level": "WARN"}]
    wanted = [{"name": "com.shop", "level": "DEBUG"}]
    assert admin.post("/adm/logger", json=wanted, headers=through).json() == wanted
    assert backend.loggers == wanted


async def test_a_name_of_a_logger_leads_nowhere_else_in_the_backend(backend: Backend) -> None:
    loggers = BackendLoggers(backend.address, BackendFramework.SPRING_BOOT, WITHIN_SECONDS)
    try:
        await loggers.set([LoggerLevel("com.shop", "DEBUG"), LoggerLevel("../shutdown?now", "DEBUG")])
        with pytest.raises(Fault, match="no name of a logger"):
            await loggers.set([LoggerLevel("com.shop", "INFO"), LoggerLevel("..", "INFO")])
    finally:
        await loggers.close()
    asked = [one for one in backend.asked if "actuator" in one]
    assert asked == ["POST /actuator/loggers/com.shop", "POST /actuator/loggers/..%2Fshutdown%3Fnow"]


def test_log_lines_are_found_by_logger_level_and_time(admin: httpx.Client) -> None:
    logging.getLogger("shop.till").error("stuck")
    asked = {"loggerName": "shop", "loggerLevel": "WARN"}
    found = admin.get("/adm/logger/content", params=asked).json()["shop.till"]
    assert found["total"] == 1
    assert found["logs"][0]["event"] == "stuck"
    assert admin.get("/adm/logger/content", params={**asked, "endTime": "1"}).json() == {}
    refused = admin.get("/adm/logger/content", params={"loggerLevel": "LOUD"})
    assert (refused.status_code, refused.json()["code"]) == (400, "ERR11004")


def test_modules_are_listed_and_reloaded(admin: httpx.Client) -> None:
    names = admin.get("/adm/modules").json()
    assert names == ["schemas"]
    assert admin.post("/adm/modules", json=["com.networknt.kafka.common.KafkaConsumerConfig"]).json() == []
    assert admin.post("/adm/modules", json=["ALL"]).json() == names


def test_assaults_strike_the_backend_port_until_they_are_put_away(world: SidecarWorld, admin: httpx.Client) -> None:
    assert admin.get("/adm/chaosmonkey").json()[LATENCY]["latencyRangeEnd"] == 3000
    armed = {"enabled": True, "bypass": False, "level": 1}
    try:
        answer = admin.post(f"/adm/chaosmonkey/{EXCEPTION}", json=armed)
        assert (answer.status_code, answer.json()) == (200, armed)
        struck = world.http.post("/producers/any", json={"records": []})
        assert (struck.status_code, struck.json()["code"]) == (500, "ERR10010")
        assert world.http.get("/health").status_code == 200
    finally:
        admin.post(f"/adm/chaosmonkey/{EXCEPTION}", json={})
    assert world.http.post("/producers/any", json={"records": []}).status_code == 200
    unknown = admin.post("/adm/chaosmonkey/com.networknt.chaos.Rain", json={})
    assert (unknown.status_code, unknown.json()["code"]) == (400, "ERR11004")


def test_assaults_that_are_not_allowed_are_refused(kafka: Kafka) -> None:
    with started(kafka.bootstrap) as quiet:
        refused = quiet.http.post(f"/adm/chaosmonkey/{LATENCY}", json={"enabled": True})
    assert (refused.status_code, refused.json()["code"]) == (400, "ERR10065")
    assert refused.json()["description"] == "Handler Chaos Monkey is disabled."


def test_health_tells_check_by_check_and_a_sick_backend_does_not_restart_the_sidecar(
    admin: httpx.Client, backend: Backend
) -> None:
    assert admin.get("/adm/health/any").json()["checks"] == dict.fromkeys(
        ("producer", "clients", "kafka", "backend", "instances"), "OK"
    )
    backend.health = 500

    def sickness() -> httpx.Response | None:
        return found if (found := admin.get("/health")).status_code == 400 else None

    try:
        sick = wait_until(sickness, "the backend is asked again")
        assert sick.json()["status"] == "ERROR"
        assert "500" in sick.json()["checks"]["backend"]
        assert admin.get("/health/liveness").status_code == 200
    finally:
        backend.health = 200


def test_topics_are_listed_and_described(admin: httpx.Client, kafka: Kafka, orders: str) -> None:
    kafka.write(orders, {"value": "a", "partition": 1}, {"value": "b", "partition": 1})
    wait_until(
        lambda: {"topic": orders, "partitions": 2} in admin.get("/adm/kafka/topics").json(), "the topic is listed"
    )
    detail = admin.get(f"/adm/kafka/topics/{orders}").json()
    assert [(one["partition"], one["first"], one["next"]) for one in detail["partitions"]] == [(0, 0, 0), (1, 0, 2)]
    missing = admin.get("/adm/kafka/topics/never-made")
    assert (missing.status_code, missing.json()["code"]) == (404, "ERR12960")


def test_a_topic_is_made_with_its_partitions_and_settings(admin: httpx.Client, kafka: Kafka, topic: str) -> None:
    wanted = {"topic": topic, "partitions": 3, "replicationFactor": 1, "settings": {"cleanup.policy": "compact"}}
    made = admin.post("/adm/kafka/topics", json=wanted)
    assert (made.status_code, made.json()) == (201, {"topic": topic, "partitions": 3})
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    assert client.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == "compact"
    by_default = admin.post("/adm/kafka/topics", json={"topic": f"{topic}-usual"})
    assert (by_default.status_code, by_default.json()["partitions"] > 0) == (201, True)


@pytest.mark.parametrize(
    ("given", "answered"),
    [
        ({"partitions": 0}, (400, "ERR11004")),
        ({"partitions": 10_001}, (400, "ERR11004")),
        ({"replicationFactor": 33}, (400, "ERR11004")),
        ({"settings": {f"setting.{number}": "1" for number in range(101)}}, (400, "ERR11004")),
        ({"settings": {"cleanup.policy": 1}}, (400, "ERR11004")),
        ({"replicationFactor": 32}, (400, "ERR12966")),
        ({"settings": {"no.such": "setting"}}, (400, "ERR12966")),
    ],
)
def test_a_topic_that_is_out_of_bounds_or_that_kafka_refuses_is_not_made(
    admin: httpx.Client, topic: str, given: Json, answered: tuple[int, str]
) -> None:
    refused = admin.post("/adm/kafka/topics", json={"topic": topic, **given})
    assert (refused.status_code, refused.json()["code"]) == answered
    assert admin.get(f"/adm/kafka/topics/{topic}").status_code == 404


def test_instances_are_watched_paused_moved_and_drained(
    world: SidecarWorld, admin: httpx.Client, kafka: Kafka, orders: str, group: str
) -> None:
    kafka.write(orders, *({"value": str(n), "partition": 0} for n in range(3)))
    instance = world.create(group, "c1", valueFormat="string")
    instance.subscribe(orders)
    assert len(instance.read_all(3)) == 3

    name = f"{group}.c1"

    def shown() -> Json:
        """As far as the instance's thread could tell in time."""
        [one] = [one for one in admin.get("/adm/kafka/consumers").json() if one["name"] == name]
        places = [(each["position"], each["lag"]) for each in one["partitions"] if each["partition"] == 0]
        return {"state": one["state"], "topics": one["topics"], "places": places}

    def is_shown_as(state: str) -> None:
        wanted = {"state": state, "topics": [orders], "places": [(3, 0)]}
        wait_until(lambda: shown() == wanted, f"operators see {wanted}")

    is_shown_as("reading")
    assert admin.post(f"/adm/kafka/consumers/{name}/pause").status_code == 200
    is_shown_as("paused")
    assert instance.read(timeout=0) == []
    assert admin.post(f"/adm/kafka/consumers/{name}/resume").status_code == 200
    is_shown_as("reading")
    moved = admin.post(f"/adm/kafka/consumers/{name}/seek", json={"topic": orders, "partition": 0, "offset": 1})
    assert moved.status_code == 200, moved.text
    assert [record["value"] for record in instance.read_all(2)] == ["1", "2"]
    assert admin.post(f"/adm/kafka/consumers/{name}/drain", json={"timeoutMs": 1}).json()["state"] == "drained"
    instance.delete()

    gone = admin.post(f"/adm/kafka/consumers/{name}/pause")
    assert (gone.status_code, gone.json()["code"]) == (404, "ERR12200")
    for unclear in ({"offset": 1}, {"to": "first", "offset": 1}, {"to": "last", "partition": 0}, {}):
        refused = admin.post(f"/adm/kafka/consumers/{name}/seek", json=unclear)
        assert (refused.status_code, refused.json()["code"]) == (400, "ERR11004"), unclear


def test_the_lag_of_a_group_is_measured_whoever_asks(
    world: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    kafka.write(orders, *({"value": str(n), "partition": 0} for n in range(3)))
    instance = world.create(group, "c1", valueFormat="string")
    instance.subscribe(orders)
    instance.read_all(1, max_bytes=1)
    lag = partial(REGISTRY.get_sample_value, "kafka_mesh_sidecar_group_lag_records", {"group": group, "topic": orders})
    wait_until(lambda: lag() == 2, "what is left to read is measured, without control")
    instance.delete()
    assert lag() is None


def test_what_an_operator_orders_lasts_beyond_the_call_and_the_process(
    kafka: Kafka, orders: str, group: str, tmp_path: Path
) -> None:
    kafka.write(orders, {"value": "a", "partition": 0})
    shortly = dict.fromkeys(("max_read_ms", "request_timeout_ms", "stream_heartbeat_ms", "stream_idle_timeout_ms"), 900)
    patience = {**shortly, "max_call_ms": 8_000}  # the other calls have to end in time
    name = f"/adm/kafka/consumers/{group}.c1"

    def state(world: SidecarWorld) -> str:
        [shown] = world.http.get("/adm/kafka/consumers").json()
        return str(shown["state"])

    with started(kafka.bootstrap, state_dir=tmp_path, **patience) as world:
        instance = world.create(group, "c1", valueFormat="string")
        instance.subscribe(orders)
        instance.read_all(1)
        given_up = world.http.post(f"{name}/drain", json={"timeoutMs": 600_000})
        assert (given_up.status_code, state(world)) == (503, "draining")
        assert instance.commit().status_code == 200
        wait_until(lambda: state(world) == "drained", "the drain has come to its end")
        assert world.http.post(f"{name}/resume").status_code == 200
        assert world.http.post(f"{name}/pause").json()["state"] == "paused"
    with started(kafka.bootstrap, state_dir=tmp_path, **patience) as world:
        assert state(world) == "paused"


def test_metrics_reach_influx_by_topic_and_of_the_kafka_clients(
    world: SidecarWorld, backend: Backend, orders: str
) -> None:
    assert world.produce(orders, {"value": 1}, valueFormat="json").status_code == 200
    topic = "kafka_mesh_sidecar_topic_produced_records_total,api=kafka-mesh-sidecar,host="
    wait_until(
        lambda: any(
            line.startswith(topic) and f"topic={orders} value=1.0" in line
            for push in tuple(backend.pushed)
            for line in push.splitlines()
        ),
        "the topic's records are pushed",
    )
    clients = "kafka_mesh_sidecar_client_sent_messages_total"
    wait_until(lambda: clients in backend.pushed[-1], "the clients' statistics are pushed")

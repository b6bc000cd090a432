"""Client telemetry: what clients are asked for, which pushes are taken, and what is known of them then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from mesh.compression import Codec, compress
from services.gateway.requests.memory import Memory, Session
from services.gateway.requests.telemetry import clients as limits
from services.gateway.requests.telemetry import otlp
from services.gateway.requests.telemetry.clients import SeriesKey, Subscription, Telemetry, TelemetryClient
from services.gateway.requests.telemetry.requests import handle_push, handle_subscriptions
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from services.gateway.wire.schema import NO_UUID
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.telemetry.otlp_of_clients import counter, gauge, histogram, pushed

INSTANCE = bytes(range(16))
INTERVAL_S = 60.0
CONNECTIONS = "org.apache.kafka.producer.connection.count"
SENT = "org.apache.kafka.producer.record.send.total"


@dataclass
class Client:
    """One client instance and the gateway that it talks to."""

    telemetry: Telemetry = field(default_factory=lambda: Telemetry(Subscription(interval_s=INTERVAL_S, max_bytes=500)))
    now: float = 1000.0

    def ask(self, instance: bytes = INSTANCE) -> GetTelemetrySubscriptionsResponse:
        answer = self._play(handle_subscriptions, GetTelemetrySubscriptionsRequest(instance))
        assert isinstance(answer, GetTelemetrySubscriptionsResponse)
        return answer

    def push(self, payload: bytes = b"", *, after_s: float = INTERVAL_S, codec: int = Codec.NONE, **said: Any) -> int:
        self.now += after_s
        message: dict[str, Any] = {
            "subscription_id": self.telemetry.subscription.subscription_id,
            "client_instance_id": INSTANCE,
        }
        packed = compress(Codec(codec), payload) if codec in list(Codec) else payload
        request = PushTelemetryRequest(**(message | said), compression_type=codec, metrics=packed)
        error: int = self._play(handle_push, request).error_code
        return error

    @property
    def known(self) -> TelemetryClient:
        return self.telemetry.by_instance[INSTANCE]

    def series(self) -> dict[str, float]:
        return {key.name: value for key, value in self.known.series.items()}

    def _play(self, handle: Any, message: Any) -> Any:
        memory = Memory(telemetry=self.telemetry)
        session = Session(software_name="apache-kafka-java", software_version="4.3.1")
        world = World({"c1": []}, memory=memory, session=session, now=self.now)
        return Playbook(handle, message, 0, world.view(), "fruit-seller").answer


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_client_is_told_what_to_send_and_gets_a_name(client: Client) -> None:
    told = client.ask(NO_UUID)
    assert told.error_code == 0
    assert told.client_instance_id not in (NO_UUID, INSTANCE)
    assert (told.client_instance_id[6] >> 4, told.client_instance_id[8] >> 6) == (4, 2)
    assert told.requested_metrics == [""]
    assert (told.push_interval_ms, told.telemetry_max_bytes, told.delta_temporality) == (60_000, 500, True)
    assert told.accepted_compression_types == [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]


def test_a_client_keeps_its_name(client: Client) -> None:
    assert client.ask(INSTANCE).client_instance_id == INSTANCE


def test_all_gateways_with_the_same_settings_give_the_same_subscription() -> None:
    assert Client().ask().subscription_id == Client().ask().subscription_id
    other = Client(Telemetry(Subscription(("org.apache.kafka.consumer.",), INTERVAL_S, 500)))
    assert other.ask().subscription_id != Client().ask().subscription_id


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_pushed_is_known_by_client(client: Client, codec: Codec) -> None:
    assert client.push(pushed(gauge(CONNECTIONS, 3.5, node_id="7"), group_id="g"), codec=codec) == 0
    assert client.known.series == {SeriesKey(CONNECTIONS, (("group_id", "g"), ("node_id", "7"))): 3.5}
    assert (client.known.client_id, client.known.software_name) == ("fruit-seller", "apache-kafka-java")
    assert client.telemetry.pushes == 1


def test_deltas_are_summed_up_and_totals_replace_each_other(client: Client) -> None:
    for value in (2, 3):
        client.push(pushed(counter(SENT, value), counter("total", value, delta=False), gauge("now", value)))
    assert client.series() == {SENT: 5, "total": 3, "now": 3}


def test_a_delta_that_is_no_number_spoils_no_sum(client: Client) -> None:
    for value in (2.0, float("nan"), 3.0):
        client.push(pushed(counter(SENT, value)))
    assert client.series() == {SENT: 5}


def test_a_histogram_is_its_count_and_sum(client: Client) -> None:
    client.push(pushed(histogram("latency", 4, 2.5)))
    assert client.series() == {"latency.count": 4, "latency.sum": 2.5}


def test_a_first_push_may_come_early_and_a_last_one_too(client: Client) -> None:
    client.ask()
    assert client.push(after_s=1) == 0
    assert client.push(after_s=1, terminating=True) == 0
    assert client.push(after_s=INTERVAL_S) == ErrorCode.INVALID_REQUEST


def test_a_push_before_its_time_is_refused(client: Client) -> None:
    assert client.push() == 0
    assert client.push(after_s=INTERVAL_S / 2) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert client.push(after_s=INTERVAL_S / 2) == 0
    assert client.telemetry.refused_pushes == 1


def test_who_asks_too_often_is_told_to_wait(client: Client) -> None:
    client.push()
    client.now += 10
    told = client.ask()
    assert (told.error_code, told.throttle_time_ms) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 50_000)
    client.now += 50
    assert client.ask().error_code == 0


def test_another_subscription_is_refused_and_the_client_may_ask_at_once(client: Client) -> None:
    client.push()
    assert client.push(subscription_id=5) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert client.ask().error_code == 0
    assert client.push(after_s=1) == 0


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"client_instance_id": NO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"codec": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"payload": bytes(501)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"payload": b"\xff\xff"}, ErrorCode.INVALID_RECORD),
        ({"payload": bytes(2 << 20), "codec": Codec.ZSTD}, ErrorCode.INVALID_RECORD),
    ],
)
def test_what_is_not_taken(client: Client, said: dict[str, Any], error: ErrorCode) -> None:
    assert client.push(**said) == error
    assert client.telemetry.refused_pushes == 1


def test_without_metrics_nothing_is_asked_for() -> None:
    assert Client(Telemetry(Subscription(()))).ask().requested_metrics == []


def test_with_too_many_clients_the_one_heard_of_longest_ago_leaves() -> None:
    client = Client(Telemetry(Subscription(), capacity=2))
    for number in (1, 2, 3):
        client.push(client_instance_id=bytes([number]) * 16, after_s=1)
    assert [instance[0] for instance in client.telemetry.by_instance] == [2, 3]


def test_silent_clients_make_room(client: Client) -> None:
    client.push()
    client.push(client_instance_id=b"\x02" * 16, after_s=4 * INTERVAL_S)
    assert list(client.telemetry.by_instance) == [b"\x02" * 16]


def test_a_client_has_a_bounded_number_of_series(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SERIES_OF_A_CLIENT", 2)
    client.push(pushed(gauge("a", 1), gauge("b", 1)))
    client.push(pushed(gauge("a", 1), gauge("c", 1)))
    assert list(client.series()) == ["a", "c"]
    assert client.telemetry.dropped_series == 1


def test_a_push_has_a_bounded_number_of_points_attributes_and_letters(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "MAX_POINTS", 1)
    monkeypatch.setattr(otlp, "MAX_ATTRIBUTES", 2)
    monkeypatch.setattr(otlp, "MAX_TEXT", 3)
    client.push(pushed(gauge("apples", 1, first="pears", second="x", third="x"), gauge("b", 1)))
    assert list(client.known.series) == [SeriesKey("app", (("fir", "pea"), ("sec", "x")))]

"""The error of the gateway that a viewer reads: the cause, and not its summary."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from services.console.records.kafka import Client
from services.console.settings import ConsoleSettings

CAUSE = KafkaError(KafkaError._TRANSPORT, "Connect to ipv4#127.0.0.1:9092 failed: Connection refused")
SUMMARY = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


@pytest.mark.parametrize("met", [(CAUSE, SUMMARY), (SUMMARY, CAUSE)], ids=["cause first", "summary first"])
def test_all_brokers_down_does_not_hide_why_they_are_down(met: tuple[KafkaError, ...]) -> None:
    client = Client(ConsoleSettings(gateway_address="gateway.example:9093"), token="")
    for error in met:
        client.properties["error_cb"](error)
    assert "Connection refused" in client.trouble


def test_all_brokers_down_alone_is_the_trouble() -> None:
    client = Client(ConsoleSettings(gateway_address="gateway.example:9093"), token="")
    client.properties["error_cb"](SUMMARY)
    assert client.trouble == "1/1 brokers are down"

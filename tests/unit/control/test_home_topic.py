"""Topics of the home cluster whose settings control may not change: the operator hears which command mends them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from services.control.store.home_topic import PublishError, _see_to_settings


class Refusing:
    """An admin client of a principal that may see the settings of topics, and change none."""

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        shown: Future[Any] = Future()
        values = {"max.message.bytes": "10000", "retention.ms": "3600000"}
        shown.set_result({name: SimpleNamespace(value=value) for name, value in values.items()})
        return {resources[0]: shown}

    def incremental_alter_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        refused: Future[Any] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
        return {resources[0]: refused}


def test_a_topic_whose_settings_control_may_not_change_comes_with_the_command_that_changes_them() -> None:
    with pytest.raises(PublishError) as told:
        _see_to_settings(Refusing(), "mesh.events", {"retention.ms": "-1"}, "kafka:9092")
    assert "has retention.ms=3600000, max.message.bytes=10000" in str(told.value)
    command = "kafka-configs --bootstrap-server kafka:9092 --alter --entity-type topics --entity-name mesh.events"
    assert f"{command} --add-config retention.ms=-1,max.message.bytes=" in str(told.value)

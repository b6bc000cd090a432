"""What Kafka clients are made with."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.kafka_properties import client_properties, consumer_properties, producer_properties


def settings(**properties: dict[str, str]) -> SidecarSettings:
    return SidecarSettings.model_validate({"bootstrap_servers": "a:9092", **properties})


def test_secrets_are_found_where_they_are_referred_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    monkeypatch.setenv("KAFKA_USER", "mesh")
    given = {"sasl.username": "${env:KAFKA_USER}", "sasl.password": f"${{file:{tmp_path}/password}}"}
    made = client_properties(settings(kafka_properties=given))
    assert (made["sasl.username"], made["sasl.password"]) == ("mesh", "hunter2")


def test_a_secret_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match=r"sasl\.password: \$\{env:NOWHERE\} refers to an environment variable"):
        settings(consumer_properties={"sasl.password": "${env:NOWHERE}"})


def test_one_side_may_have_properties_of_its_own() -> None:
    made = settings(
        kafka_properties={"client.rack": "a"},
        producer_properties={"client.rack": "p"},
        consumer_properties={"client.rack": "c", "bootstrap.servers": "b:9092"},
    )
    assert (client_properties(made)["client.rack"], client_properties(made)["bootstrap.servers"]) == ("a", "a:9092")
    assert (producer_properties(made)["client.rack"], producer_properties(made)["bootstrap.servers"]) == ("p", "a:9092")
    assert (consumer_properties(made)["client.rack"], consumer_properties(made)["bootstrap.servers"]) == ("c", "b:9092")


def test_what_is_promised_is_not_for_properties_to_change() -> None:
    made = producer_properties(
        settings(kafka_properties={"acks": "0"}, producer_properties={"enable.idempotence": "false"})
    )
    assert (made["acks"], made["enable.idempotence"]) == ("all", True)

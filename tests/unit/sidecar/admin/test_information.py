"""What a sidecar says of itself, and what it keeps to itself."""

import json
from pathlib import Path

from pydantic import BaseModel, SecretStr

from mesh import VERSION
from services.sidecar.admin.information import information, shown_settings
from services.sidecar.formats import Format
from services.sidecar.settings import SidecarSettings


class Registry(BaseModel):
    url: str = "https://mesh:s3cret@registry:8081"
    basic_auth_password: str = "s3cret"
    ca: Path = Path("/etc/ca.pem")
    none: str | None = None


class Settings(BaseModel):
    value_format: Format = Format.JSON
    queue_ms: int = 5
    servers: tuple[str, ...] = ("a:1", "ssl://mesh:s3cret@b:2", "http://c/write?db=d&u=mesh&p=s3cret&n=1")
    kafka_properties: dict[str, SecretStr] = {"sasl.password": SecretStr("s3cret"), "empty": SecretStr("")}
    registry: Registry = Registry()
    extra: dict[str, str] = {"client_secret": "s3cret", "acks": "all"}


def test_settings_are_shown_without_their_secrets() -> None:
    shown = shown_settings(Settings())
    assert shown == {
        "value_format": "json",
        "queue_ms": 5,
        "servers": ["a:1", "ssl://*@b:2", "http://c/write?db=d&u=*&p=*&n=1"],
        "kafka_properties": {"sasl.password": "*", "empty": ""},
        "registry": {
            "url": "https://*@registry:8081",
            "basic_auth_password": "*",
            "ca": "/etc/ca.pem",
            "none": None,
        },
        "extra": {"client_secret": "*", "acks": "all"},
    }
    assert "s3cret" not in json.dumps(shown)


def test_the_originals_members_are_there() -> None:
    settings = SidecarSettings(name="mine", kafka_properties={"sasl.password": SecretStr("s3cret")})
    found = information(settings, fingerprint="ab12")
    assert found["deployment"] == {"apiVersion": VERSION, "frameworkVersion": VERSION}
    assert set(found["environment"]) == {"host", "runtime", "system"}
    assert found["environment"]["runtime"]["availableProcessors"] >= 1
    assert found["environment"]["runtime"]["totalMemory"] > found["environment"]["runtime"]["freeMemory"] >= 0
    assert found["security"] == {"serverFingerPrint": "ab12"}
    assert found["component"]["sidecar"]["name"] == "mine"
    assert "s3cret" not in json.dumps(found)

"""Where a client enters: an address, or `USER:PASSWORD@HOST:PORT` for a client that logs in by SCRAM-SHA-256.

Every driver takes such a text as its bootstrap, also the programs of other languages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MECHANISM = "SCRAM-SHA-256"
PROTOCOL = "SASL_PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Entrance:
    """A bootstrap, taken apart."""

    address: str
    user: str = ""
    password: str = ""

    @classmethod
    def of(cls, bootstrap: str) -> Entrance:
        login, _, address = bootstrap.rpartition("@")
        user, _, password = login.partition(":")
        return cls(address, user, password)

    def __str__(self) -> str:
        return f"{self.user}:{self.password}@{self.address}" if self.user else self.address


def of_librdkafka(bootstrap: str) -> dict[str, Any]:
    """The configuration of librdkafka's clients."""
    entrance = Entrance.of(bootstrap)
    login = {
        "security.protocol": PROTOCOL,
        "sasl.mechanism": MECHANISM,
        "sasl.username": entrance.user,
        "sasl.password": entrance.password,
    }
    return {"bootstrap.servers": entrance.address, **(login if entrance.user else {})}


def of_python(bootstrap: str) -> dict[str, Any]:
    """The arguments of aiokafka and kafka-python."""
    entrance = Entrance.of(bootstrap)
    login = {
        "security_protocol": PROTOCOL,
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": entrance.user,
        "sasl_plain_password": entrance.password,
    }
    return {"bootstrap_servers": entrance.address, **(login if entrance.user else {})}


def of_java(bootstrap: str) -> str:
    """The properties of Kafka's tools, as a file has them; empty for a client that does not log in."""
    entrance = Entrance.of(bootstrap)
    if not entrance.user:
        return ""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'{module} required username="{entrance.user}" password="{entrance.password}";'
    return f"security.protocol={PROTOCOL}\nsasl.mechanism={MECHANISM}\nsasl.jaas.config={login}\n"

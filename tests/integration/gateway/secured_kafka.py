"""A real Kafka that wants to know who connects: a listener for each protocol, its own authority, its own users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from local.ports import free_block
from tests.fixtures.certificates import Authority, Signed
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until

USER, PASSWORD = "mesh", "correct-horse, battery=staple"
SHORT_LIFE_MS = 1500
"""After so long a login with PLAIN over SASL_SSL must be renewed, or the broker disconnects."""
ITERATIONS = 4096
ADMIN_S = 20.0
MODULE = "org.apache.kafka.common.security"


class SecuredKafka(KafkaCluster):
    """`bootstrap` is plain, for the test itself; the others are for the gateway."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        super().__init__("secured", folder / "kafka", folder / "security.properties")
        self.authority = Authority(folder)
        self.client: Signed = self.authority.sign("client", password=PASSWORD)
        first = free_block(4)
        self.tls, self.mutual_tls, self.sasl, self.sasl_tls = (f"127.0.0.1:{first + n}" for n in range(4))
        broker = self.authority.sign("broker")
        keystore = folder / "broker-keystore.pem"
        keystore.write_text(broker.key.read_text() + broker.certificate.read_text(), encoding="ascii")
        (folder / "security.properties").write_text(self._properties(keystore), encoding="ascii")

    def _properties(self, keystore: Path) -> str:
        clients = {
            "PLAINTEXT": self.bootstrap,
            "TLS": self.tls,
            "MUTUAL": self.mutual_tls,
            "SASL": self.sasl,
            "SASL_TLS": self.sasl_tls,
        }
        told = ",".join(f"{name}://{address}" for name, address in clients.items())
        plain = f'{MODULE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        scram = f"{MODULE}.scram.ScramLoginModule required;"
        settings = {
            "listeners": f"{told},CONTROLLER://127.0.0.1:{self._port + 1}",
            "advertised.listeners": told,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TLS:SSL,MUTUAL:SSL,"
            "SASL:SASL_PLAINTEXT,SASL_TLS:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keystore,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.certificate,
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_tls.plain.connections.max.reauth.ms": SHORT_LIFE_MS,
        }
        for listener in ("sasl", "sasl_tls"):
            settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = scram
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def start(self) -> None:
        super().start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, ITERATIONS)
            wanted = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([wanted]).values():
                future.result(ADMIN_S)

        def known() -> bool:
            described: Any = admin.describe_user_scram_credentials([USER])
            return len(described[USER].result(ADMIN_S).scram_credential_infos) == 2

        wait_until(known, "the users are known", ADMIN_S)

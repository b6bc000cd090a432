"""A real broker that can also be reached through a byte relay: whoever bootstraps there is told the relay's address.

It has a second listener, and advertises the relay in its place.
"""

from __future__ import annotations

from pathlib import Path

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block


class RelayedKafka(KafkaCluster):
    """`bootstrap` is direct; a relay from `relay_port` to `behind_port` is the other way."""

    def __init__(self, folder: Path) -> None:
        further = folder / "relayed.properties"
        super().__init__("relayed", folder / "kafka", further)
        self.relay_port = free_block(2)
        self.behind_port = self.relay_port + 1
        further.write_text(self._properties(), encoding="ascii")

    def _properties(self) -> str:
        settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap},RELAYED://127.0.0.1:{self.behind_port},"
            f"CONTROLLER://127.0.0.1:{self._port + 1}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},RELAYED://127.0.0.1:{self.relay_port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,RELAYED:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

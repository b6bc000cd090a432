"""The world of a client test: one bootstrap address, the clusters behind it, and topics that nobody else uses.

`MESH_TEST_BOOTSTRAP` (with `MESH_TEST_C1` and `MESH_TEST_C2` for the clusters, if they are others) points the suite at
something that runs already: a gateway, or a plain Kafka cluster, which every driver must get along with first. With
`MESH_TEST_CONTROL`, the address of its admin API, the tests that change rules run too; `MESH_TEST_TLS_FOLDER` names
the certificate of an operator, if control asks for one. Two runs with the same `MESH_TEST_NAMES` use the same names.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mesh.rpc.tls import RpcTls
from tests.clients.operator import Operator
from tests.clients.upstream import Upstream
from tests.fixtures.meshes import Mesh

PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the system under test is; without `control` its rules are what they are."""

    bootstrap: str
    control: str | None
    c1: str
    c2: str
    caller: RpcTls | None = None
    """The certificate for control."""
    logs_in: bool = False
    """Clients log in, each suite as its own user."""

    @classmethod
    def of(cls, mesh: Mesh) -> Addresses:
        return cls(mesh.gateway, mesh.control, mesh.cluster("c1"), mesh.cluster("c2"), mesh.admin)


def addresses(request: pytest.FixtureRequest) -> Addresses:
    """The running system that the environment names, or else the session's mesh."""
    given = os.environ.get("MESH_TEST_BOOTSTRAP")
    if given:
        c1, c2 = (os.environ.get(name, given) for name in ("MESH_TEST_C1", "MESH_TEST_C2"))
        folder = os.environ.get("MESH_TEST_TLS_FOLDER")
        return Addresses(given, os.environ.get("MESH_TEST_CONTROL"), c1, c2, RpcTls(Path(folder)) if folder else None)
    return Addresses.of(request.getfixturevalue("mesh"))


@dataclass(slots=True)
class World:
    """The address under test; its rules send topics `c1-...` to c1, `c2-...` to c2, others as the test says."""

    bootstrap: str
    c1: Upstream
    c2: Upstream
    operator: Operator | None = None
    mark: str = ""
    """Ends all names. Empty: each name has an end of its own."""
    _made: list[tuple[Upstream, str]] = field(default_factory=list)
    _moving: list[str] = field(default_factory=list)
    _serial: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def at(cls, where: Addresses, test: str = "") -> World:
        """`test`: the id of the test, from which its names follow if `MESH_TEST_NAMES` is set."""
        operator = Operator(where.control, where.caller) if where.control else None
        given = os.environ.get("MESH_TEST_NAMES")
        mark = uuid.uuid5(uuid.NAMESPACE_OID, f"{given} {test}").hex[:8] if given else ""
        return cls(where.bootstrap, Upstream("c1", where.c1), Upstream("c2", where.c2), operator, mark)

    def name(self, prefix: str) -> str:
        """A name that no other test and no earlier run has used."""
        return f"{prefix}-{next(self._serial)}-{self.mark or uuid.uuid4().hex[:8]}"

    async def topic_on_each(self, partitions: int = PARTITIONS) -> tuple[str, str]:
        """A topic on c1 and another one on c2, made on the clusters themselves."""
        on_c1, on_c2 = self.name("c1-clients"), self.name("c2-clients")
        await self._make(self.c1, on_c1, partitions)
        await self._make(self.c2, on_c2, partitions)
        return on_c1, on_c2

    async def topic_on_both(self, partitions: int = PARTITIONS) -> str:
        """One topic that both clusters have, so that it can move between them."""
        topic = self.name("moving")
        await self._make(self.c1, topic, partitions)
        await self._make(self.c2, topic, partitions)
        self._moving.append(topic)
        return topic

    async def clean_up(self) -> None:
        for cluster, topic in self._made:
            await cluster.delete_topic(topic)
        if self.operator is not None:
            for topic in self._moving:
                await self.operator.forget(topic)
            self.operator.close()

    async def _make(self, cluster: Upstream, topic: str, partitions: int) -> None:
        await cluster.create_topic(topic, partitions)
        self._made.append((cluster, topic))

"""Three clusters in a ring of mirrors, one of which lets in only who has a password: it is the target of one mirror and
the source of the next. Each record is on each cluster once, and the password is nowhere to be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mesh.rpc import routing
from services.router.forwarding.orders import Clusters, RunRule
from tests.fixtures.record_rules import WITHIN_S, Side, Workers, ends, mirror
from tests.fixtures.secured_kafka import PASSWORD, SecuredKafka, Way
from tests.fixtures.waiting import wait_until

VARIABLE = "MESH_TEST_MIRROR_PASSWORD"
ROUNDS = 2
RECORDS = 40
WRONG = "wrong-horse"


class SecuredSide(Side):
    """The test comes in by the plain listener, workers over SASL_SSL."""

    def __init__(self, name: str, kafka: SecuredKafka, password: str) -> None:
        super().__init__(name, kafka.bootstrap)
        self._kafka = kafka
        self.password = password

    @property
    def spec(self) -> routing.ClusterSpec:
        way: Way = self._kafka.way("SCRAM-SHA-512 over tls", password=self.password)
        return routing.ClusterSpec(
            cluster_name=self.name, bootstrap_servers=[way.bootstrap], producer_config=way.properties
        )


@pytest.fixture
def c3(secured: SecuredKafka) -> Iterator[SecuredSide]:
    side = SecuredSide("c3", secured, f"${{env:{VARIABLE}}}")
    yield side
    side.clean()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "workers.log"


@pytest.fixture
def ring(c1: Side, c2: Side, c3: SecuredSide, log: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    """A process that knows all three."""
    monkeypatch.setenv(VARIABLE, PASSWORD)
    with Workers(log, (c1, c2, c3)).running() as workers:
        yield workers
        workers.renew()  # rules end before their topics are deleted


def test_in_a_ring_each_record_is_on_each_cluster_once(
    c1: Side, c2: Side, c3: SecuredSide, ring: Workers, topic: str, log: Path
) -> None:
    sides = (c1, c2, c3)
    for side in sides:
        side.create(topic, 2)
    ways = [(f"{one.name}-{other.name}", one, other) for one, other in zip(sides, (c2, c3, c1), strict=True)]
    for revision, (rule_id, one, other) in enumerate(ways, 12):
        ring.run(RunRule(mirror(rule_id, topic, source=one.name, target=other.name), revision, revision))
    for rule_id, _, _ in ways:
        ring.wait_for(rule_id, "runs", lambda said: said.revision)

    written: list[bytes] = []
    for first in range(0, ROUNDS * RECORDS, RECORDS):  # in lots: the ring turns meanwhile
        for side in sides:
            values = [f"{side.name}-{number}".encode() for number in range(first, first + RECORDS)]
            side.write(topic, [(index % 2, value) for index, value in enumerate(values)])
            written += values
        for side in sides:
            wait_until(partial(_has, side, topic, len(written)), f"all are on {side.name}", WITHIN_S)

    for rule_id, one, _ in ways:  # whatever could have come home is there
        ring.wait_until_caught_up(rule_id, ends(one, topic))
    for side in sides:
        copies = side.read(topic)
        assert sorted(copy.value or b"" for copy in copies) == sorted(written)
        own = [copy for copy in copies if (copy.value or b"").startswith(side.name.encode())]
        assert all(name != "mesh-origin" for copy in own for name, _ in copy.headers), "none came home"
    assert nowhere(PASSWORD, ring, log, [rule_id for rule_id, _, _ in ways])


def test_a_wrong_password_is_a_problem_that_does_not_tell_it(
    c1: Side, c2: Side, c3: SecuredSide, ring: Workers, topic: str, log: Path, tmp_path: Path
) -> None:
    c3.create(topic)
    c3.write(topic, [(0, b"0"), (0, b"1")])
    c1.will_have(topic)
    file = tmp_path / "password"
    c3.password = f"${{file:{file}}}"
    ring.say(Clusters((c1.spec, c2.spec, c3.spec), ring.mesh_id))
    ring.run(RunRule(mirror("apples", topic, source="c3", target="c1"), 12, 12))
    said = ring.wait_for("apples", "has a problem", lambda said: said.problem)
    assert said.problem == f"cluster 'c3': sasl.password: ${{file:{file}}} can't be read: No such file or directory"

    file.write_text(WRONG, encoding="ascii")
    said = ring.wait_for("apples", "is not let in", lambda said: "Authentication failed" in said.problem)
    assert said.problem.startswith("cluster 'c3'")
    assert nowhere(WRONG, ring, log, ["apples"])

    file.write_text(f"{PASSWORD}\n", encoding="ascii")
    ring.wait_until_caught_up("apples", ends(c3, topic))
    assert [copy.value for copy in c1.read(topic)] == [b"0", b"1"]
    assert nowhere(PASSWORD, ring, log, ["apples"])


def nowhere(secret: str, workers: Workers, log: Path, rule_ids: list[str]) -> bool:
    """Whether neither the command line, nor the log, nor what the process says of its rules tells it."""
    command = Path(f"/proc/{workers.pid}/cmdline").read_text()
    said = " ".join(str(workers.progress(rule_id)) for rule_id in rule_ids)
    return not any(secret in text for text in (command, said, log.read_text(encoding="utf-8")))


def _has(side: Side, topic: str, count: int) -> bool:
    return len(side.read(topic)) >= count

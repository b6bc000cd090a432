"""The story of the specification: a backend fails, its records become dead letters, it is fixed, and an operator has
them processed from the control plane; audit tells all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.backend import Backend, answer_of
from tests.fixtures.meshes import Mesh
from tests.fixtures.push_ledger import Place
from tests.fixtures.record_rules import Copy, Side
from tests.fixtures.sidecar_under_kills import SidecarProcess
from tests.fixtures.waiting import wait_unless, wait_until

pytestmark = pytest.mark.timeout(240)

WITHIN_S = 60.0
SIDECAR = "shop-1"
MAX_RETRIES = 2
BUG = "KeyError: 'total'"
ORDERS = {"order-1": "well-1", "order-7": "bad-7", "order-8": "bad-8", "order-9": "well-9"}
"""Keys and correlation ids."""
BROKEN = ("order-7", "order-8")
Step = tuple[str, str, str]
"""What audit tells of a record: who had it, how that ended, and in which topic."""


class Shop:
    """A service with its sidecar, in a mesh that an operator looks after."""

    def __init__(self, mesh: Mesh, c1: Side, topic: str, group: str, sidecar: SidecarProcess, backend: Backend) -> None:
        self._mesh, self._c1, self.topic, self.group = mesh, c1, topic, group
        self._sidecar = sidecar
        self.backend = backend

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.topic}.dlq"

    def produce(self) -> dict[str, Place]:
        """One record for each order, and where it lies."""
        records = [
            {"key": key, "value": {"order": key}, "correlationId": id_, "headers": {"source": "web"}}
            for key, id_ in ORDERS.items()
        ]
        answer = httpx.post(
            f"{self._sidecar.address}/producers/{self.topic}",
            json={"keyFormat": "string", "valueFormat": "json", "records": records},
            timeout=WITHIN_S,
        )
        assert answer.status_code == 200, answer.text
        places = [Place(each["partition"], each["offset"]) for each in answer.json()["offsets"]]
        return dict(zip(ORDERS, places, strict=True))

    def dead_letters(self, count: int) -> dict[str, Copy]:
        """By key, when so many are there."""
        wait_until(lambda: len(self._c1.read(self.dead_letter_topic)) >= count, f"{count} dead letters", WITHIN_S)
        return {(each.key or b"").decode(): each for each in self._c1.read(self.dead_letter_topic)}

    def replays_dead_letters(self, *arguments: str) -> str:
        """What the operator sees."""
        return self._mesh.meshctl("replay", "dead-letters", self.topic, *arguments).stdout

    def replays(self) -> list[tuple[str, str]]:
        """How those of this shop ended, and why they were asked for; the newest first."""
        told = json.loads(self._mesh.meshctl("replay", "list", "--limit", "100", "-o", "json").stdout)
        mine = [each for each in told["replays"] if each["spec"]["ranges"][0]["topic"].startswith(self.topic)]
        return [(each["state"], each["reason"]) for each in mine]

    def audit_tells(self, correlation_id: str, *steps: Step) -> None:
        """Of a record, sooner or later: these, in whatever order, and nothing else."""

        def obstacle() -> str | None:
            told = self._story(correlation_id)
            return None if set(told) == set(steps) else f"so far {told}"

        wait_unless(obstacle, f"audit tells of {correlation_id}: {steps}", WITHIN_S)

    def _story(self, correlation_id: str) -> list[Step]:
        wanted = "--correlation-id", correlation_id, "--since", "1h", "--no-follow", "-o", "json"
        events = map(json.loads, self._mesh.meshctl("audit", "tail", *wanted).stdout.splitlines())
        return [(each["audit_type"], each["audit_status"], each["topic"]) for each in events]


@pytest.fixture
def c1(mesh: Mesh, apples: str) -> Iterator[Side]:
    side = Side("c1", mesh.cluster("c1"))
    for topic in (apples, f"{apples}.dlq"):
        side.create(topic)
    yield side
    side.clean()


@pytest.fixture
def shop(mesh: Mesh, c1: Side, apples: str, group: str, tmp_path: Path) -> Iterator[Shop]:
    with Backend().running() as backend:
        sidecar = SidecarProcess(
            tmp_path,
            mesh.gateway,
            name=SIDECAR,
            control_addresses=mesh.control,
            rpc_tls_folder=mesh.certificate("sidecar", SIDECAR),
            reactive_topics=apples,
            reactive_group=group,
            backend_url=backend.host_url,
            backend_max_retries=str(MAX_RETRIES),
            backend_retry_delay_ms="10",
            audit_target="topic",
        )
        with sidecar.running():
            yield Shop(mesh, c1, apples, group, sidecar, backend)


def test_what_a_backend_failed_on_is_replayed_once_it_is_fixed_and_audit_tells_all_of_it(shop: Shop) -> None:
    topic, dead_letters = shop.topic, shop.dead_letter_topic
    written: Step = ("PRODUCER", "SUCCESS", topic)
    failed: Step = ("REACTIVE_CONSUMER", "FAILURE", topic)
    kept: Step = ("PRODUCER", "SUCCESS", dead_letters)

    # the backend has a bug: it stumbles over two orders, and goes on with the others
    shop.backend.always(
        answer_of(lambda record: {"status": "RETRY", "stacktrace": BUG} if record["key"] in BROKEN else {})
    )
    places = shop.produce()
    letters = shop.dead_letters(len(BROKEN))
    assert letters.keys() == set(BROKEN)
    for key, letter in letters.items():
        assert letter.value == b'{"order":"%s"}' % key.encode()
        facts = {name: (value or b"").decode() for name, value in letter.headers}
        written_at, failed_at = int(facts.pop("dlq.timestamp")), int(facts.pop("dlq.first.failure"))
        assert written_at <= failed_at <= letter.timestamp
        assert facts == {
            "X-Correlation-Id": ORDERS[key],
            "source": "web",
            "StackTrace": BUG,
            "dlq.topic": topic,
            "dlq.partition": str(places[key].partition),
            "dlq.offset": str(places[key].offset),
            "dlq.group": shop.group,
            "dlq.reason": "retries",
            "dlq.attempts": str(1 + MAX_RETRIES),
        }
        shop.audit_tells(ORDERS[key], written, failed, kept)
    shop.audit_tells(ORDERS["order-1"], written, ("REACTIVE_CONSUMER", "SUCCESS", topic))

    # it is fixed; the operator counts, has one order given to the backend, and the other one to the topic it came from
    shop.backend.cure()
    shop.backend.calls.clear()
    assert "2 offsets" in shop.replays_dead_letters("--to", "backend", "--dry-run")
    assert shop.backend.calls == []
    assert "done" in shop.replays_dead_letters("--to", "backend", "--key", "order-7", "--wait", "--why", "bug 7 fixed")
    (again,) = shop.backend.records
    assert (again["topic"], again["key"], again["value"]) == (dead_letters, "order-7", {"order": "order-7"})
    to_source = "--to", "source", "--sidecar", SIDECAR
    assert "done" in shop.replays_dead_letters(*to_source, "--key", "order-8", "--wait", "--why", "bug 8 fixed")
    _, again = shop.backend.wait_for_records(2)
    assert (again["topic"], again["key"], again["value"]) == (topic, "order-8", {"order": "order-8"})
    assert again["offset"] > places["order-8"].offset
    assert again["headers"] == {"X-Correlation-Id": ORDERS["order-8"], "source": "web"}, "as it was at first"

    # the control plane knows who did what and why, and audit how both orders failed, and came to a good end
    assert shop.replays()[:2] == [("REPLAY_STATE_DONE", "bug 8 fixed"), ("REPLAY_STATE_DONE", "bug 7 fixed")]
    well_again: Step = ("STREAMING_CONSUMER", "SUCCESS", dead_letters)
    shop.audit_tells(ORDERS["order-7"], written, failed, kept, well_again)
    rewritten: Step = ("STREAMING_PRODUCER", "SUCCESS", topic)
    shop.audit_tells(ORDERS["order-8"], written, failed, kept, rewritten, ("REACTIVE_CONSUMER", "SUCCESS", topic))
    assert len(shop.backend.records) == len(BROKEN), "each once, and nothing else"

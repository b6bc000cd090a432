"""One owner for each share session, whichever worker its member asks."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from services.gateway.downstream import sweeping
from services.gateway.downstream.mesh import ClientLimits, Mesh
from services.gateway.downstream.siblings import INBOX_KIND, Introduction, Siblings, SiblingWay
from services.gateway.downstream.slots import Slot
from services.gateway.requests.memory import Session
from services.gateway.requests.nodes import Advertised
from services.gateway.requests.plan import Answer, Request
from services.gateway.settings import GatewaySettings
from services.gateway.upstream.clusters import Clusters
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_request_header
from services.gateway.wire.messages import MetadataRequest, ShareAcknowledgeRequest, ShareFetchRequest
from services.gateway.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from services.gateway.wire.messages.share_fetch import ShareFetchResponse
from services.gateway.wire.schema import Struct
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage

MEMBERS = [(f"group-{n % 7}", f"member-{n}") for n in range(200)]
WORKERS = 3
MANY = 10


@dataclass
class Asking:
    """A client's connection, as its way to other workers sees it."""

    session: Session = field(default_factory=lambda: Session("10.0.0.1:5", "test", "kgo", "1.2", 101, "10.0.0.1"))
    answers: asyncio.Queue[Answer] = field(default_factory=asyncio.Queue)

    def slot_answered(self, slot: Slot, answer: Answer) -> None:
        self.answers.put_nowait(answer)


def workers() -> list[Siblings]:
    pairs = [socket.socketpair(socket.AF_UNIX, INBOX_KIND) for _ in range(WORKERS)]
    doors = [door for door, _ in pairs]
    return [Siblings(number, inbox, doors) for number, (_, inbox) in enumerate(pairs, start=1)]


def slot_of(message: Struct, version: int) -> Slot:
    frame = memoryview(bytearray(encode_request(message, version, 7, "test")))
    header = parse_request_header(frame, SIZE_BYTES, len(frame))
    return Slot(header, None, Request(header, frame), len(frame))


def test_all_workers_name_the_same_owner_and_each_owns_some_sessions() -> None:
    siblings = workers()
    owners = []
    for member in MEMBERS:
        named = [each.owner_of(member) for each in siblings]
        [owner] = [number for number, told in enumerate(named, start=1) if told is None]
        assert {told for told in named if told is not None} == {owner}
        owners.append(owner)
    assert set(owners) == set(range(1, WORKERS + 1))


def test_a_client_is_introduced_as_it_is() -> None:
    here, there = Asking().session, Session()
    Introduction.of(here).apply(there)
    assert (there.peer, there.software_name, there.asked_node, there.address) == ("10.0.0.1:5", "kgo", 101, "10.0.0.1")


def way_of(client: Asking, siblings: Siblings | None) -> SiblingWay:
    mesh = Mesh(Clusters(GatewaySettings(name="g").upstream_limits), "mesh-id", ClientLimits())
    mesh.siblings = siblings
    return SiblingWay(client, mesh)


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (ShareFetchRequest("group-0", "member-0", 1), ShareFetchResponse),
        (ShareAcknowledgeRequest("group-0", "member-0", 1), ShareAcknowledgeResponse),
    ],
)
async def test_an_owner_that_leaves_is_a_broker_that_was_restarted(message: Struct, answer: type) -> None:
    siblings, client = workers(), Asking()
    owner = next(each for each in siblings if each.owner_of(MEMBERS[0]) is None)
    other = next(each for each in siblings if each is not owner)
    way = way_of(client, other)
    owner.close()
    assert way.takes(slot_of(message, 1))
    told = await asyncio.wait_for(client.answers.get(), 10)
    assert isinstance(told, answer)
    assert isinstance(told, ShareFetchResponse | ShareAcknowledgeResponse)
    assert told.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    way.close()


async def test_what_is_this_workers_own_or_about_no_share_session_stays_here() -> None:
    siblings, client = workers(), Asking()
    owner = next(each for each in siblings if each.owner_of(MEMBERS[0]) is None)
    assert not way_of(client, owner).takes(slot_of(ShareFetchRequest(*MEMBERS[0], 1), 1))
    assert not way_of(client, owner).takes(slot_of(MetadataRequest(), 9))
    assert not way_of(client, None).takes(slot_of(ShareFetchRequest(*MEMBERS[0], 1), 1))


async def test_each_worker_finishes_decisions_and_one_does_the_rest_for_all(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: dict[str, list[sweeping.Sweeping]] = defaultdict(list)
    for name in ("_finish_decisions", "_abort_abandoned", "_delete_shadows"):

        async def work(sweep: sweeping.Sweeping, name: str = name) -> None:
            done[name].append(sweep)

        monkeypatch.setattr(sweeping.Sweeping, name, work)
    for pause in ("DECISIONS_PAUSE_S", "ABANDONED_PAUSE_S", "SHADOWS_PAUSE_S"):
        monkeypatch.setattr(sweeping, pause, 0.001)
    sweeps = []
    for each in workers():
        stage.gateway.mesh.siblings = each
        sweeps.append(sweeping.Sweeping(stage.gateway.mesh, Advertised("127.0.0.1", 1)))
    stage.gateway.mesh.siblings = None
    tasks = [asyncio.create_task(sweep.run()) for sweep in sweeps]
    await until(lambda: all(done["_finish_decisions"].count(sweep) > MANY for sweep in sweeps))
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert set(done["_abort_abandoned"]) == set(done["_delete_shadows"]) == {sweeps[0]}

"""One plan on its way, without sockets: what becomes of it when something goes wrong, and of bytes that it keeps."""

import asyncio
from collections.abc import Generator
from typing import Any, cast

import pytest

from services.gateway import metrics
from services.gateway.downstream.conversions import Conversions
from services.gateway.downstream.exchange import Exchange
from services.gateway.requests.plan import Answer, Ask, Call, Close, Gather, NoAnswer, Outcome, Plan, RawResponse
from services.gateway.upstream.awaiting import Settle
from services.gateway.upstream.clusters import Clusters
from services.gateway.upstream.lanes import Lanes
from services.gateway.wire.messages import MetadataRequest
from services.gateway.wire.primitives import WireError
from tests.fixtures.waiting import until


class Upstream:
    """Takes calls down; the test settles them. Clusters called "broken" can't be sent to."""

    def __init__(self) -> None:
        self.settles: list[Settle] = []

    def submit(self, call: Call, lanes: Lanes, client_id: str | None, settle: Settle, _names: object) -> None:
        if call.cluster == "broken":
            raise WireError("Metadata.topics", -1, "can't be encoded")
        self.settles.append(settle)

    def incarnation(self, cluster: str, _lanes: object) -> int:
        return int(cluster.removeprefix("c"))


def call(cluster: str, resume_key: object = None) -> Call:
    return Call(cluster, MetadataRequest(), 4, raw=True, resume_key=resume_key)


def start(plan: Plan, upstream: Upstream, lanes: Lanes | None = None) -> list[Answer]:
    """The answers of the plan; it has one when it has ended."""
    answers: list[Answer] = []
    exchange = Exchange(
        plan,
        cast(Clusters, upstream),
        Conversions(),
        lanes or Lanes(),
        "test",
        lambda _, answer: answers.append(answer),
    )
    exchange.start()
    return answers


def window(receive_buffer: bytearray) -> RawResponse:
    return RawResponse(memoryview(receive_buffer), 0, 4)


def test_a_call_that_cannot_be_sent_ends_its_plan_and_nobody_elses() -> None:
    def plan() -> Generator[Any, Any, Answer]:
        yield Ask((call("c1"),))
        yield Ask((call("broken"),))
        return NoAnswer()

    upstream = Upstream()
    answers = start(plan(), upstream)
    upstream.settles[0](window(bytearray(8)), False)  # in the read of the connection to c1, which is not to blame
    assert [type(answer) for answer in answers] == [Close]


async def test_a_request_has_sent_its_calls_when_it_asks_and_not_while_it_prepares() -> None:
    """The next Produce of the connection starts then, and would overtake this one."""

    def plan() -> Generator[Any, Any, Answer]:
        yield Ask((call("c1"),), preliminary=True)
        yield Gather((call("c1"),), lambda outcomes: True, 0.0)  # the end of another producer's transaction
        yield Ask((call("c2"),))
        return NoAnswer()

    upstream, told = Upstream(), list[str]()
    exchange = Exchange(
        plan(), cast(Clusters, upstream), Conversions(), Lanes(), "test", lambda *_: told.append("ended")
    )
    exchange.on_asked = lambda: told.append(f"asked by call {len(upstream.settles)}")
    exchange.start()
    assert (len(upstream.settles), told) == (1, [])
    upstream.settles[0](window(bytearray(8)), False)
    assert told == ["asked by call 3"]
    upstream.settles[2](window(bytearray(8)), False)
    assert told == ["asked by call 3", "ended"]


async def test_what_was_left_behind_is_copied_for_a_plan_that_keeps_it() -> None:
    """The call was alone in its own plan, but is one of two in the plan that takes it up."""
    got: list[tuple[Outcome | None, ...]] = []

    def alone() -> Generator[Any, Any, Answer]:
        yield Gather((call("c1", resume_key="k"),), lambda outcomes: False, 0.0)
        return NoAnswer()

    def both() -> Generator[Any, Any, Answer]:
        got.append(
            (yield Gather((call("c1", resume_key="k"), call("c2", resume_key="k")), lambda o: None not in o, 9.0))
        )
        return NoAnswer()

    upstream, lanes = Upstream(), Lanes()
    left = start(alone(), upstream, lanes)
    await until(lambda: left, "the plan has ended")
    start(both(), upstream, lanes)
    receive_buffer = bytearray(b"of c1")
    upstream.settles[0](window(receive_buffer), False)
    receive_buffer[:] = b"other"
    upstream.settles[1](window(bytearray(b"of c2")), False)
    assert [bytes(o.frame) for o in got[0] if isinstance(o, RawResponse)] == [b"of c1", b"of c2"]


def gathering(got: list[tuple[Outcome | None, ...]], *clusters: str, enough: bool = True) -> Plan:
    """Asks these clusters at once; any outcome is enough, or none."""
    calls = tuple(call(cluster, resume_key="k") for cluster in clusters)
    got.append((yield Gather(calls, lambda outcomes: enough and any(outcomes), 0.0)))
    return NoAnswer()


async def ended(answers: list[Answer]) -> None:
    await until(lambda: answers, "the plan has ended")


async def test_a_late_answer_resumes_a_plan_at_once_and_the_others_are_left_behind_in_their_turn() -> None:
    got: list[tuple[Outcome | None, ...]] = []
    upstream, lanes = Upstream(), Lanes()
    await ended(start(gathering(got, "c1", enough=False), upstream, lanes))
    upstream.settles[0](window(bytearray(b"of c1")), False)
    await ended(start(gathering(got, "c1", "c2"), upstream, lanes))
    upstream.settles[1](window(bytearray(b"of c2")), False)
    await ended(start(gathering(got, "c2"), upstream, lanes))
    frames = [[bytes(o.frame) if isinstance(o, RawResponse) else o for o in outcomes] for outcomes in got]
    assert frames == [[None], [b"of c1", None], [b"of c2"]]
    assert len(upstream.settles) == 2, "nothing was asked twice"


async def test_a_wait_may_have_begun_before() -> None:
    def plan() -> Plan:
        yield Gather((), lambda _: False, 60.0, since=asyncio.get_running_loop().time() - 59.99)
        return NoAnswer()

    await ended(start(plan(), Upstream()))


async def test_a_pause_before_the_gateway_asks_again_is_counted() -> None:
    def plan() -> Plan:
        yield Gather((), lambda _: False, 0.0, waits_for="coordinator")
        return NoAnswer()

    counted = metrics.pauses.labels("coordinator")._value
    before = counted.get()
    await ended(start(plan(), Upstream()))
    assert counted.get() == before + 1


async def test_what_nobody_comes_back_for_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.upstream.lanes.LEFT_BEHIND_S", -1.0)
    got: list[tuple[Outcome | None, ...]] = []
    upstream, lanes = Upstream(), Lanes()
    await ended(start(gathering(got, "c1", enough=False), upstream, lanes))
    upstream.settles[0](window(bytearray(b"of c1")), False)
    assert len(lanes.left_behind) == 1
    await ended(start(gathering(got, "c2", enough=False), upstream, lanes))
    assert [left.outcome for left in lanes.left_behind.values()] == [None], "only what c2 has yet to say is waited for"

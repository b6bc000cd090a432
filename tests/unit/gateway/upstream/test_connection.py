"""One connection to a broker: order, deadlines, and what happens to those who wait when it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from mesh.connection_security import ConnectionSecurity, Mechanism, PasswordLogin
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.plan import Call, RawResponse, Sent, Unreachable
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.connection import SEVERED, BrokerConnection
from services.gateway.upstream.keyring import Keyring
from services.gateway.upstream.lookup import Lookup
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import encode_request, encode_response
from services.gateway.wire.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.scripted_broker import ScriptedBroker, broker, once_each

MAX_FRAME = 1 << 20


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedBroker]:
    async with broker({}) as running:
        yield running


class Caller:
    """Submits heartbeats and keeps their outcomes."""

    def __init__(self, scripted: ScriptedBroker, *, max_in_flight: int = 10, keyring: Keyring | None = None) -> None:
        self.connection = BrokerConnection(
            "c1", scripted.address, MAX_FRAME, max_in_flight, AnswerRoom(1 << 30), keyring
        )
        self.outcomes: dict[str, RawResponse | Unreachable | Sent] = {}
        self.order: list[str] = []
        self._changed = asyncio.Event()
        self._scripted = scripted

    async def open(self) -> str | None:
        return await self.connection.open("127.0.0.1", self._scripted.port, 2.0, Lookup("c1"))

    def submit(self, group: str, timeout_s: float = WITHIN_S, *, no_answer: bool = False) -> None:
        call = Call("c1", HeartbeatRequest(group), 0, timeout_s=timeout_s, no_answer=no_answer)
        self.connection.submit(call, ApiKey.HEARTBEAT, "me", self._settle(group))

    def _settle(self, group: str) -> Callable[[RawResponse | Unreachable | Sent, bool], None]:
        def settle(outcome: RawResponse | Unreachable | Sent, _: bool) -> None:
            assert group not in self.outcomes, "an outcome came twice"
            self.outcomes[group] = outcome
            self.order.append(group)
            self._changed.set()

        return settle

    async def all(self, count: int) -> None:
        async with asyncio.timeout(WITHIN_S):
            while len(self.outcomes) < count:
                self._changed.clear()
                await self._changed.wait()


async def test_what_is_submitted_before_the_connection_is_up_leaves_in_order(scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.HEARTBEAT] = lambda header, message: HeartbeatResponse()
    caller = Caller(scripted)
    for group in "abc":
        caller.submit(group)
    await caller.open()
    caller.submit("d")
    await caller.all(4)
    assert [m.group_id for m in scripted.requests(ApiKey.HEARTBEAT)] == ["a", "b", "c", "d"]
    assert caller.order == ["a", "b", "c", "d"]
    assert {header.client_id for header, _ in scripted.received} == {"me"}


async def test_a_deadline_ends_the_connection_and_all_who_wait(scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.HEARTBEAT] = once_each(HeartbeatResponse(), None, None)
    caller = Caller(scripted)
    await caller.open()
    for group, bound in (("a", 5.0), ("b", 5.0), ("c", 0.1)):
        caller.submit(group, bound)
    await caller.all(3)
    assert isinstance(caller.outcomes["a"], RawResponse)
    assert [type(caller.outcomes[g]) for g in "bc"] == [Unreachable, Unreachable]
    caller.submit("d")
    assert caller.outcomes["d"] == Unreachable("c1", caller.connection.ended or "", never_sent=True)


async def test_an_answer_to_another_request_breaks_the_connection(scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.HEARTBEAT] = once_each(encode_response(HeartbeatResponse(), 0, 4711))
    caller = Caller(scripted)
    await caller.open()
    caller.submit("a")
    await caller.all(1)
    assert "4711" in str(caller.outcomes["a"])


async def test_a_frame_that_claims_too_much_breaks_the_connection(scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.HEARTBEAT] = once_each((MAX_FRAME + 1).to_bytes(4, "big") + bytes(100))
    caller = Caller(scripted)
    await caller.open()
    caller.submit("a")
    await caller.all(1)
    assert "not Kafka" in str(caller.outcomes["a"])


async def test_a_lost_connection_is_told_to_all_who_wait(scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.HEARTBEAT] = lambda header, message: None
    caller = Caller(scripted)
    await caller.open()
    for group in "ab":
        caller.submit(group)
    await scripted.stop()
    await caller.all(2)
    assert [isinstance(o, Unreachable) and not o.never_sent for o in caller.outcomes.values()] == [True, True]


async def test_nobody_listening_is_told_at_once(scripted: ScriptedBroker) -> None:
    await scripted.stop()
    caller = Caller(scripted)
    caller.submit("a")
    await caller.open()
    await caller.all(1)
    outcome = caller.outcomes["a"]
    assert isinstance(outcome, Unreachable)
    assert outcome.never_sent


async def test_too_many_unanswered_requests_are_refused(scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.HEARTBEAT] = lambda header, message: None
    caller = Caller(scripted, max_in_flight=2)
    for group in "abc":
        caller.submit(group)
    assert isinstance(caller.outcomes["c"], Unreachable)
    await caller.open()
    caller.connection.shut("test ends")
    assert len(caller.outcomes) == 3


async def test_a_retired_connection_still_brings_its_answers(scripted: ScriptedBroker) -> None:
    released = asyncio.Event()

    async def later(header: object, message: object) -> HeartbeatResponse:
        await released.wait()
        return HeartbeatResponse()

    scripted.scripts[ApiKey.HEARTBEAT] = later
    caller = Caller(scripted)
    await caller.open()
    caller.submit("a")
    caller.connection.retire("the client is gone")
    assert caller.connection.ended is None
    released.set()
    await caller.all(1)
    assert isinstance(caller.outcomes["a"], RawResponse)
    assert caller.connection.ended == "the client is gone"


async def test_a_congested_connection_that_retires_slows_its_client_no_more(scripted: ScriptedBroker) -> None:
    """Its client goes on elsewhere: the cluster has left the mesh."""
    caller = Caller(scripted)
    told: list[bool] = []
    caller.connection.on_congestion = told.append
    await caller.open()
    caller.connection.pause_writing()
    assert told == [True]
    caller.connection.retire("the cluster has left")
    assert caller.connection.ended == "the cluster has left"
    assert told[-1] is False


async def test_a_request_without_acks_counts_as_sent_when_it_leaves(scripted: ScriptedBroker) -> None:
    """Until then it is in memory: a client whose requests are sent is read on."""
    caller = Caller(scripted)
    caller.submit("a", no_answer=True)
    assert caller.outcomes == {}
    await caller.open()
    assert caller.outcomes == {"a": Sent()}
    caller.submit("b", no_answer=True)
    assert caller.order == ["a", "b"]


async def test_a_request_without_acks_that_can_not_leave_is_not_sent(scripted: ScriptedBroker) -> None:
    await scripted.stop()
    caller = Caller(scripted)
    caller.submit("a", no_answer=True)
    await caller.open()
    outcome = caller.outcomes["a"]
    assert isinstance(outcome, Unreachable)
    assert outcome.never_sent


class PlainKeyring(Keyring):
    """Knows a password."""

    def __init__(self) -> None:
        super().__init__("c1", ConnectionSecurity(login=PasswordLogin(Mechanism.PLAIN, "me", "secret")))


def lets_in(scripted: ScriptedBroker, *, lifetime_ms: int = 0) -> None:
    scripted.versions |= {ApiKey.SASL_HANDSHAKE: VersionRange(0, 1), ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2)}
    scripted.scripts[ApiKey.SASL_HANDSHAKE] = lambda header, message: SaslHandshakeResponse(mechanisms=["PLAIN"])
    scripted.scripts[ApiKey.SASL_AUTHENTICATE] = lambda header, message: SaslAuthenticateResponse(
        session_lifetime_ms=lifetime_ms
    )
    scripted.scripts[ApiKey.HEARTBEAT] = lambda header, message: HeartbeatResponse()


async def test_requests_leave_behind_the_login(scripted: ScriptedBroker) -> None:
    lets_in(scripted)
    caller = Caller(scripted, keyring=PlainKeyring())
    caller.submit("a")
    await caller.open()
    caller.submit("b")
    await caller.all(2)
    asked = [header.api_key for header, _ in scripted.received]
    login = [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
    assert asked == [*login, ApiKey.HEARTBEAT, ApiKey.HEARTBEAT]
    assert caller.order == ["a", "b"]


async def test_nothing_comes_between_the_requests_of_a_renewal(scripted: ScriptedBroker) -> None:
    lets_in(scripted, lifetime_ms=100)
    caller = Caller(scripted, max_in_flight=10_000, keyring=PlainKeyring())
    await caller.open()
    sent = 0
    async with asyncio.timeout(WITHIN_S):
        while len(scripted.requests(ApiKey.SASL_AUTHENTICATE)) < 4:
            caller.submit(f"{sent}")
            sent += 1
            await caller.all(sent - 5)
    await caller.all(sent)
    asked = [header.api_key for header, _ in scripted.received]
    for at, key in enumerate(asked):
        if key == ApiKey.SASL_HANDSHAKE:
            assert asked[at + 1] == ApiKey.SASL_AUTHENTICATE
    assert asked.count(ApiKey.API_VERSIONS) == 1
    assert caller.order == [f"{n}" for n in range(sent)]


async def test_a_refused_login_is_told_to_who_waits_as_never_sent(scripted: ScriptedBroker) -> None:
    lets_in(scripted)
    scripted.scripts[ApiKey.SASL_AUTHENTICATE] = lambda header, message: SaslAuthenticateResponse(
        error_code=58, error_message="not secret"
    )
    caller = Caller(scripted, keyring=PlainKeyring())
    caller.submit("a")
    fault = await caller.open()
    assert fault == f"{scripted.address} does not let us in: not (secret)"
    assert caller.outcomes["a"] == Unreachable("c1", fault, never_sent=True)
    assert not scripted.requests(ApiKey.HEARTBEAT)


def takes_more(caller: Caller) -> bool:
    return caller.connection.takes_more()


def ended(caller: Caller) -> str | None:
    return caller.connection.ended


class Half:
    """A heartbeat that goes on while it comes."""

    correlation_id = 0
    deadline = 0.0
    api_key = ApiKey.HEARTBEAT

    def __init__(self, group: str, connection: BrokerConnection) -> None:
        self.frame = memoryview(bytearray(encode_request(HeartbeatRequest(group), 0, 4711, "me")))
        self.outcome: str | Unreachable | None = None
        self._connection = connection

    def begin(self) -> None:
        self._connection.begin_passing_on(self.frame[:20], None, self)

    def end(self) -> None:
        self._connection.pass_on_more(self.frame[20:])
        self._connection.end_passing_on(asyncio.get_running_loop().time() + WITHIN_S)

    def begun(self, beginning: memoryview, missing: int) -> None:
        return None

    def answered(self, frame: memoryview, owned: bool) -> None:
        self.outcome = "answered"

    def failed(self, outcome: Unreachable) -> None:
        self.outcome = outcome


async def test_nothing_comes_into_the_middle_of_a_request_that_goes_on_while_it_comes(scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.HEARTBEAT] = lambda header, message: HeartbeatResponse()
    caller = Caller(scripted)
    await caller.open()
    caller.submit("a")
    half = Half("b", caller.connection)
    half.begin()
    assert not takes_more(caller)
    caller.submit("c")
    caller.submit("d")
    await caller.all(1)
    half.end()
    assert takes_more(caller)
    await caller.all(3)
    assert half.outcome == "answered"
    assert [message.group_id for _, message in scripted.received] == ["a", "b", "c", "d"]


async def test_a_request_has_no_deadline_while_it_comes_and_one_from_its_end_on(scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.HEARTBEAT] = once_each(HeartbeatResponse(), None)
    caller = Caller(scripted)
    await caller.open()
    caller.submit("a", 1.0)
    half = Half("b", caller.connection)
    half.begin()
    await caller.all(1)
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(1.1, passed.set)  # the deadline of the first, which has been answered
    await passed.wait()
    assert caller.connection.ended is None
    caller.connection.pass_on_more(half.frame[20:])
    caller.connection.end_passing_on(asyncio.get_running_loop().time() + 0.05)
    await until(lambda: half.outcome)
    assert "in time" in str(half.outcome)


async def test_half_a_request_was_never_sent_if_the_connection_ends(scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.HEARTBEAT] = lambda header, message: None
    caller = Caller(scripted)
    await caller.open()
    caller.submit("a")
    half = Half("b", caller.connection)
    half.begin()
    caller.submit("c")
    await until(lambda: scripted.received)
    for there in list(scripted.connections):
        there.transport.abort()
    await caller.all(2)
    outcomes = (caller.outcomes["a"], half.outcome, caller.outcomes["c"])
    assert [isinstance(each, Unreachable) and each.never_sent for each in outcomes] == [False, True, True]


async def test_what_was_sent_before_a_request_that_is_broken_off_is_answered(scripted: ScriptedBroker) -> None:
    gate = asyncio.Event()

    async def late(header: object, message: object) -> HeartbeatResponse:
        await gate.wait()
        return HeartbeatResponse()

    scripted.scripts[ApiKey.HEARTBEAT] = late
    caller = Caller(scripted)
    await caller.open()
    caller.submit("a")
    half = Half("b", caller.connection)
    half.begin()
    caller.submit("c")
    caller.connection.sever()
    caller.submit("d")
    await caller.all(1)
    assert caller.outcomes["d"] == Unreachable("c1", SEVERED, never_sent=True)
    assert ended(caller) is None
    gate.set()
    await caller.all(3)
    assert isinstance(caller.outcomes["a"], RawResponse)
    assert caller.outcomes["c"] == Unreachable("c1", SEVERED, never_sent=True)
    assert half.outcome is None
    assert ended(caller) == SEVERED
    assert caller.connection.fault is None


async def test_a_broker_that_answers_what_it_can_not_have_is_left(scripted: ScriptedBroker) -> None:
    scripted.scripts[ApiKey.HEARTBEAT] = once_each(
        encode_response(HeartbeatResponse(), 0, 1) + encode_response(HeartbeatResponse(), 0, 2)
    )
    caller = Caller(scripted)
    await caller.open()
    caller.submit("a")
    half = Half("b", caller.connection)
    half.begin()
    await until(lambda: half.outcome)
    assert isinstance(half.outcome, Unreachable)
    assert half.outcome.never_sent


async def test_a_login_is_renewed_behind_a_request_that_still_comes(scripted: ScriptedBroker) -> None:
    lets_in(scripted, lifetime_ms=50)
    caller = Caller(scripted, keyring=PlainKeyring())
    await caller.open()
    half = Half("a", caller.connection)
    await until(caller.connection.takes_more)
    half.begin()
    logins = len(scripted.requests(ApiKey.SASL_AUTHENTICATE))
    await until(lambda: not caller.connection._ready, "the renewal has begun")
    caller.submit("b")
    half.end()
    await caller.all(1)
    assert half.outcome == "answered"
    assert len(scripted.requests(ApiKey.SASL_AUTHENTICATE)) > logins
    asked = [header.api_key for header, _ in scripted.received]
    first = asked.index(ApiKey.HEARTBEAT)
    assert asked[first : first + 3] == [ApiKey.HEARTBEAT, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]

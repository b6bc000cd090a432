"""Batches to a real backend, over HTTP: whatever it does, each record gets its verdict, and nothing is restarted."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from starlette.responses import Response
from structlog.testing import capture_logs

from services.sidecar.consuming.instance_values import HeaderShape
from services.sidecar.delivering.backend import Backend, BackendAccess, BackendSettingsError
from services.sidecar.delivering.call_writer import CallWriter, Content
from services.sidecar.delivering.circuit import CircuitSettings, CircuitState
from services.sidecar.delivering.deliverer import Deliverer, Target, UndeliveredError
from services.sidecar.delivering.policy import DeliveryPolicy
from services.sidecar.delivering.replies import ReplyWriter
from services.sidecar.delivering.token import ClientCredentials, NoTokenError, TokenGrant
from services.sidecar.formats import Format
from services.sidecar.producing.serializing import Serializer
from tests.fixtures import backend as doubles
from tests.fixtures.backend import (
    Answer,
    answer_of,
    empty,
    failing,
    hang,
    held,
    huge,
    not_json,
    offsets_of,
    reset,
    results,
    status,
    text,
    trickle,
    wrong_length,
)
from tests.fixtures.certificates import Authority
from tests.fixtures.deliveries import batch, outcomes
from tests.fixtures.oauth_issuer import CLIENT_ID, CLIENT_SECRET, SCOPE, FakeIssuer
from tests.fixtures.waiting import until

POLICY = DeliveryPolicy(max_retries=2, retry_delay=0.002, max_retry_delay=0.01)
CIRCUIT = CircuitSettings(open_after=5, pause=0.01, max_pause=0.02)
REPLIES = ReplyWriter(Serializer(Format.STRING, Format.JSON))
ALL_DONE = ["SUCCESS"] * 4
LONG_S = 30.0
SHORT_S = 2.0
"""For calls that are meant to run out of time. Others may do so on a busy machine, and come again."""
SLOW = ("slow", "trickling")
TROUBLES: dict[str, Answer] = {
    "500": status(500, body="Traceback ..."),
    "503": status(503),
    "404": status(404),
    "408": status(408),
    "302": status(302),
    "reset": reset,
    "slow": hang,
    "trickling": trickle,
    "wrong length": wrong_length(),
    "too long": wrong_length(2),
    "no JSON": not_json,
    "empty": empty,
    "204": text("", 204),
    "10 MB": huge(),
    "endless": huge(None),
}


@pytest.fixture(scope="module")
def backend_of_module() -> Iterator[doubles.Backend]:
    with doubles.Backend().running() as running:
        yield running


@pytest.fixture
def backend(backend_of_module: doubles.Backend) -> doubles.Backend:
    """As new."""
    backend_of_module.cure()
    backend_of_module.calls.clear()
    backend_of_module.health = text("OK")
    return backend_of_module


@asynccontextmanager
async def delivering(
    access: BackendAccess | doubles.Backend,
    policy: DeliveryPolicy = POLICY,
    content: Content = Content.RECORDS,
    circuit: CircuitSettings = CIRCUIT,
) -> AsyncIterator[Deliverer]:
    if isinstance(access, doubles.Backend):
        access = access_to(access)
    target = Target(Backend(access), CallWriter(content, HeaderShape.MAP, Format.JSON), circuit)
    deliverer = Deliverer(target, policy, REPLIES)
    try:
        yield deliverer
    finally:
        await deliverer.stop()
        await target.backend.close()


async def test_a_batch_goes_to_the_backend_in_the_originals_shape(backend: doubles.Backend) -> None:
    async with delivering(backend) as deliverer:
        settlement = await deliverer.deliver(batch(2, first=7))
    assert outcomes(settlement) == ["SUCCESS", "SUCCESS"]
    (call,) = backend.calls
    assert (call.method, call.path) == ("POST", "/kafka/records")
    assert [(one["topic"], one["partition"], one["offset"], one["key"]) for one in call.records] == [
        ("apples", 0, 7, "alice"),
        ("apples", 0, 8, "alice"),
    ]
    assert call.headers["content-type"] == "application/json"
    assert call.headers["idempotency-key"] == "apples-0-7-8"
    assert call.headers["delivery-attempt"] == "1"
    assert call.headers["user-agent"].startswith("kafka-mesh-sidecar/")


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_backend_in_trouble_gets_its_records_again_and_recovers_without_a_restart(
    backend: doubles.Backend, trouble: str
) -> None:
    backend.next(TROUBLES[trouble])
    async with delivering(replace(access_to(backend), timeout=SHORT_S if trouble in SLOW else LONG_S)) as deliverer:
        assert outcomes(await deliverer.deliver(batch(4))) == ALL_DONE
        if trouble not in SLOW:
            assert offsets_of(backend.calls) == [[0, 1, 2, 3]] * 2
        assert [call.headers["delivery-attempt"] for call in backend.calls[:2]] == ["1", "2"]
        assert outcomes(await deliverer.deliver(batch(4, first=4))) == ALL_DONE


@pytest.mark.parametrize("trouble", ["500", "404", "reset", "slow", "wrong length", "no JSON", "empty", "endless"])
async def test_a_record_that_the_backend_stumbles_over_is_found_and_given_up_alone(
    backend: doubles.Backend, trouble: str
) -> None:
    backend.poison(lambda record: record["offset"] == 1, TROUBLES[trouble])
    async with delivering(replace(access_to(backend), timeout=SHORT_S if trouble in SLOW else LONG_S)) as deliverer:
        settlement = await deliverer.deliver(batch(4))
    assert outcomes(settlement) == ["SUCCESS", "DEAD_LETTER retries", "SUCCESS", "SUCCESS"]
    assert settlement.verdicts[1].stacktrace
    if trouble in SLOW:
        return
    assert offsets_of(backend.calls) == [[0, 1, 2, 3]] * 2 + [[0, 1], [0]] + [[1]] * 3 + [[2, 3]]


@pytest.mark.parametrize("trouble", ["500", "503", "408", "reset", "slow", "no JSON", "empty", "302"])
async def test_a_backend_that_is_not_well_makes_no_dead_letters(backend: doubles.Backend, trouble: str) -> None:
    backend.always(TROUBLES[trouble])
    backend.health = status(500)
    async with delivering(replace(access_to(backend), timeout=0.5 if trouble in SLOW else LONG_S)) as deliverer:
        waits = asyncio.create_task(deliverer.deliver(batch(1)))
        await until(lambda: len(backend.calls) >= 8)  # far more than a record may fail
        assert not waits.done()
        assert await deliverer.target.fault() is not None
        backend.cure()
        assert outcomes(await waits) == ["SUCCESS"]
        assert await deliverer.target.fault() is None


async def test_a_backend_that_nobody_can_reach_makes_no_dead_letters(backend: doubles.Backend) -> None:
    async with delivering(backend) as deliverer:
        with backend.down():
            lanes = [asyncio.create_task(deliverer.deliver(batch(4, first=10 * lane))) for lane in range(10)]
            await until(lambda: deliverer.target.circuit.state is not CircuitState.CLOSED)
            assert (await deliverer.target.fault() or "").startswith(
                f"the backend is not called for now: the backend at {backend.host_url} cannot be reached"
            )
        assert [outcomes(await lane) for lane in lanes] == [ALL_DONE] * 10
    assert sorted(record["offset"] for record in backend.records) == sorted(
        offset for lane in range(10) for offset in range(10 * lane, 10 * lane + 4)
    )


async def test_a_backend_that_fails_every_record_while_its_health_is_well_makes_few_dead_letters(
    backend: doubles.Backend,
) -> None:
    backend.always(status(500))
    async with delivering(backend) as deliverer:
        lanes = [asyncio.create_task(deliverer.deliver(batch(3, first=10 * lane))) for lane in range(8)]
        await until(lambda: deliverer.target.circuit.state is not CircuitState.CLOSED)
        backend.cure()
        told = [one for lane in lanes for one in outcomes(await lane)]
    assert 0 < told.count("DEAD_LETTER retries") <= CIRCUIT.most_given_up
    assert told.count("SUCCESS") == 24 - told.count("DEAD_LETTER retries")


async def test_a_backend_that_refuses_every_record_does_not_drain_its_topic_into_dead_letters(
    backend: doubles.Backend,
) -> None:
    lanes, each = 8, 25
    backend.always(status(400))
    longer = replace(CIRCUIT, pause=4.0, max_pause=4.0)  # no further record is refused before the backend is well
    async with delivering(backend, circuit=longer) as deliverer:
        calls = [asyncio.create_task(deliverer.deliver(batch(each, first=each * lane))) for lane in range(lanes)]
        await until(lambda: deliverer.target.circuit.state is not CircuitState.CLOSED)
        backend.cure()
        told = [one for call in calls for one in outcomes(await call)]
    dead = told.count("DEAD_LETTER retries")
    assert CIRCUIT.most_refused < dead <= CIRCUIT.most_refused + 2 * lanes
    assert told.count("SUCCESS") == lanes * each - dead


async def test_a_failure_of_when_all_failed_is_not_held_against_its_record_when_it_is_heard_after_that(
    backend: doubles.Backend,
) -> None:
    attempts, told = 0, threading.Event()

    async def fails_late(call: doubles.Call) -> Response | None:
        nonlocal attempts
        attempts += 1
        if attempts <= POLICY.max_retries:
            return await status(500)(call)
        return await (held(told, then=status(500)) if attempts == POLICY.max_retries + 1 else doubles.accept)(call)

    backend.always(status(500))
    backend.poison(lambda record: record["offset"] == 100, fails_late)
    async with delivering(backend) as deliverer:
        late = asyncio.create_task(deliverer.deliver(batch(1, first=100)))
        await until(lambda: attempts > POLICY.max_retries, "its last call is on its way")
        for first in range(CIRCUIT.most_given_up):
            assert outcomes(await deliverer.deliver(batch(1, first=first))) == ["DEAD_LETTER retries"]
        backend.always(doubles.accept)
        assert outcomes(await deliverer.deliver(batch(1, first=200))) == ["SUCCESS"]
        told.set()
        assert outcomes(await late) == ["SUCCESS"]


async def test_a_record_that_breaks_connections_is_given_up_while_others_pass(backend: doubles.Backend) -> None:
    """Even where the backend says of itself that it is not well."""
    backend.health = status(500)
    backend.poison(lambda record: record["offset"] == 0, reset)
    async with delivering(backend) as deliverer:
        poison = asyncio.create_task(deliverer.deliver(batch(1)))
        others = 0
        while not poison.done():
            others += 1
            assert outcomes(await deliverer.deliver(batch(1, first=others))) == ["SUCCESS"]
        assert outcomes(await poison) == ["DEAD_LETTER retries"]


async def test_few_failures_are_dead_letters_at_once_and_many_have_the_call_repeated(backend: doubles.Backend) -> None:
    async with delivering(backend) as deliverer:
        backend.always(failing(3, stacktrace="ZeroDivisionError"))
        settlement = await deliverer.deliver(batch(4))
        assert outcomes(settlement) == ["SUCCESS"] * 3 + ["DEAD_LETTER backend"]
        assert settlement.verdicts[3].stacktrace == "ZeroDivisionError"
        assert len(backend.calls) == 1
        backend.calls.clear()
        assert outcomes(await deliverer.deliver(batch(2, first=2))) == ["SUCCESS", "DEAD_LETTER retries"]
        assert offsets_of(backend.calls) == [[2, 3]] * 3


async def test_each_status_of_a_record_means_what_it_says(backend: doubles.Backend) -> None:
    words = ["SUCCESS", "RETRY", "DROP", "DEAD_LETTER"]
    backend.next(answer_of(lambda record: {"status": words[record["offset"]]}))
    async with delivering(backend) as deliverer:
        settlement = await deliverer.deliver(batch(4))
    assert outcomes(settlement) == ["SUCCESS", "SUCCESS", "DROP", "DEAD_LETTER backend"]
    assert offsets_of(backend.calls) == [[0, 1, 2, 3], [1]]


@pytest.mark.parametrize("code", [429, 503])
async def test_retry_after_is_honoured_by_all_and_bounded(backend: doubles.Backend, code: int) -> None:
    """It says an hour, and is believed for ten minutes."""
    backend.next(status(code, retry_after="3600"))
    async with delivering(backend, replace(POLICY, max_retry_after=600)) as deliverer:
        lanes = [asyncio.create_task(deliverer.deliver(batch(1)))]
        await until(lambda: deliverer.target.circuit.wait() > 0)
        assert 500 < deliverer.target.circuit.wait() <= 600
        lanes.append(asyncio.create_task(deliverer.deliver(batch(1, first=1))))
        await until(lambda: deliverer.target.gate.waiting == 2)
        await deliverer.stop()
        for lane in lanes:
            with pytest.raises(UndeliveredError):
                await lane
    assert len(backend.calls) == 1


@pytest.mark.parametrize("code", [429, 503])
async def test_when_the_time_that_it_asked_for_is_over_it_is_called_again(backend: doubles.Backend, code: int) -> None:
    backend.next(*[status(code, retry_after="3600")] * 8)
    async with delivering(backend, replace(POLICY, max_retry_after=0.01)) as deliverer:
        assert outcomes(await deliverer.deliver(batch(1))) == ["SUCCESS"]
    assert len(backend.calls) == 9


async def test_what_the_backend_refuses_is_split_at_once(backend: doubles.Backend) -> None:
    backend.poison(lambda record: record["offset"] == 2, status(422, body='{"error":"no such apple"}'))
    async with delivering(backend) as deliverer:
        settlement = await deliverer.deliver(batch(4))
        assert deliverer.target.circuit.state is CircuitState.CLOSED
    assert outcomes(settlement) == ["SUCCESS", "SUCCESS", "DEAD_LETTER retries", "SUCCESS"]
    assert settlement.verdicts[2].stacktrace.endswith('answers 422: {"error":"no such apple"}')
    assert offsets_of(backend.calls) == [[0, 1, 2, 3], [0, 1], [2, 3]] + [[2]] * 3 + [[3]]


async def test_replies_are_made_ready_to_be_written(backend: doubles.Backend) -> None:
    async def with_replies(call: doubles.Call) -> Response:
        own = {"topic": "totals", "records": [{"key": "alice", "value": {"n": 1}}]}
        return results(
            {
                "results": [{"status": "SUCCESS", "produce": [own]}, {"status": "DEAD_LETTER", "produce": [own]}],
                "produce": [{"topic": "audit", "valueFormat": "string", "records": [{"value": "done"}]}],
            }
        )

    backend.always(with_replies)
    async with delivering(backend) as deliverer:
        settlement = await deliverer.deliver(batch(2))
    assert outcomes(settlement) == ["SUCCESS", "DEAD_LETTER backend"]
    assert [(one.topic, one.record.value) for one in settlement.replies] == [("totals", b'{"n":1}'), ("audit", b"done")]


async def test_a_reply_that_cannot_be_written_is_a_bad_answer(backend: doubles.Backend) -> None:
    backend.poison(lambda record: record["offset"] == 1, answer_of(lambda _: {"produce": [{"topic": "no topic"}]}))
    async with delivering(backend) as deliverer:
        settlement = await deliverer.deliver(batch(2))
    assert outcomes(settlement) == ["SUCCESS", "DEAD_LETTER retries"]
    assert "produce/0/records: Field required" in settlement.verdicts[1].stacktrace


async def test_connections_are_kept_unless_the_backend_wants_none_kept(backend: doubles.Backend) -> None:
    async with delivering(backend) as deliverer:
        for _ in range(3):
            await deliverer.deliver(batch(1))
    assert len({call.connection.number for call in backend.calls}) == 1
    backend.calls.clear()
    async with delivering(replace(access_to(backend), closes_connections=True)) as deliverer:
        for _ in range(3):
            await deliverer.deliver(batch(1))
    assert len({call.connection.number for call in backend.calls}) == 3
    assert {call.headers["connection"] for call in backend.calls} == {"close"}


async def test_the_address_and_the_path_change_at_run_time(backend: doubles.Backend) -> None:
    with doubles.Backend().running() as other:
        async with delivering(backend) as deliverer:
            await deliverer.deliver(batch(1))
            await deliverer.deliver(batch(1, path="/orders"))
            deliverer.target.backend.url = other.host_url
            deliverer.target.backend.path = "/v2/records"
            await deliverer.deliver(batch(1))
        assert [call.path for call in backend.calls] == ["/kafka/records", "/orders"]
        assert [call.path for call in other.calls] == ["/v2/records"]


async def test_cloud_events_are_an_option(backend: doubles.Backend) -> None:
    backend.always(text('[{"status":"SUCCESS"}]'))
    async with delivering(backend, content=Content.CLOUD_EVENTS) as deliverer:
        assert outcomes(await deliverer.deliver(batch(1))) == ["SUCCESS"]
    (call,) = backend.calls
    assert call.headers["content-type"] == "application/cloudevents-batch+json"
    assert json.loads(call.body)[0]["type"] == "kafka.mesh.record"


async def test_who_stops_lets_calls_end_for_a_time_and_begins_none(backend: doubles.Backend) -> None:
    answers = threading.Event()

    backend.next(held(answers), hang)
    async with delivering(backend) as deliverer:
        ends = asyncio.create_task(deliverer.deliver(batch(1)))
        await until(lambda: len(backend.calls) == 1)
        hangs = asyncio.create_task(deliverer.deliver(batch(1, first=1)))
        await until(lambda: len(backend.calls) == 2)
        await deliverer.stop(timeout=3600)
        with pytest.raises(UndeliveredError):
            await deliverer.deliver(batch(1, first=2))
        answers.set()
        assert outcomes(await ends) == ["SUCCESS"]
        await deliverer.stop()
        with pytest.raises(UndeliveredError):
            await hangs
    assert len(backend.calls) == 2


async def test_who_stops_waits_for_no_pause_and_no_circuit(backend: doubles.Backend) -> None:
    policy = replace(POLICY, retry_delay=3600, max_retry_delay=3600)
    backend.always(status(500))
    async with delivering(backend, policy) as deliverer:
        waits = [asyncio.create_task(deliverer.deliver(batch(1, first=lane))) for lane in range(2)]
        await until(lambda: len(backend.calls) == 2)
        await deliverer.stop(timeout=3600)
        for one in waits:
            with pytest.raises(UndeliveredError):
                await asyncio.wait_for(one, 30)


async def test_who_is_cancelled_leaves_the_circuit_to_the_others(backend: doubles.Backend) -> None:
    backend.always(status(503))
    async with delivering(backend) as deliverer:
        circuit = deliverer.target.circuit
        poison = asyncio.create_task(deliverer.deliver(batch(1)))
        await until(lambda: circuit.state is not CircuitState.CLOSED)
        backend.always(hang)
        await until(lambda: circuit.state is CircuitState.HALF_OPEN and circuit.wait() > 0)
        backend.cure()
        poison.cancel()
        assert outcomes(await deliverer.deliver(batch(1, first=1))) == ["SUCCESS"]


async def test_calls_carry_fixed_headers_whose_values_nobody_tells(
    backend: doubles.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOM_D_SECRET", "open-sesame")
    headers = (("X-Api-Key", "${env:ROOM_D_SECRET}"), ("X-Tenant", "fruit"))
    access = replace(access_to(backend), headers=headers)
    backend.next(status(401), status(500), reset)
    with capture_logs() as logs:
        async with delivering(access) as deliverer:
            settlement = await deliverer.deliver(batch(1))
    assert {call.headers["x-api-key"] for call in backend.calls} == {"open-sesame"}
    assert {call.headers["x-tenant"] for call in backend.calls} == {"fruit"}
    assert logs
    assert "open-sesame" not in f"{logs} {settlement} {access}"


async def test_a_secret_that_is_not_there_is_the_sidecars_trouble(backend: doubles.Backend, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    async with delivering(replace(access_to(backend), headers=(("X-Key", f"${{file:{secret}}}"),))) as deliverer:
        waits = asyncio.create_task(deliverer.deliver(batch(1)))
        await until(lambda: deliverer.target.circuit.state is not CircuitState.CLOSED)
        assert "X-Key" in (await deliverer.target.fault() or "")
        secret.write_text("k1", encoding="ascii")
        assert outcomes(await waits) == ["SUCCESS"]
    assert backend.calls[0].headers["x-key"] == "k1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def issuer(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeIssuer]:
    with FakeIssuer(tmp_path_factory.mktemp("issuer"), authority).running() as running:
        yield running


def grant(issuer: FakeIssuer, secret: str = CLIENT_SECRET) -> TokenGrant:
    return TokenGrant(issuer.url, CLIENT_ID, secret, SCOPE)


async def test_calls_carry_a_token_that_is_fetched_once_for_all(
    backend: doubles.Backend, issuer: FakeIssuer, authority: Authority
) -> None:
    before = issuer.asked
    access = replace(access_to(backend), token=grant(issuer), ca=authority.certificate)
    async with delivering(access) as deliverer:
        await asyncio.gather(*(deliverer.deliver(batch(1, first=lane)) for lane in range(10)))
    assert issuer.asked == before + 1
    (authorization,) = {call.headers["authorization"] for call in backend.calls}
    assert authorization.startswith("Bearer ey")


async def test_a_token_that_the_backend_does_not_take_is_replaced_at_once(
    backend: doubles.Backend, issuer: FakeIssuer, authority: Authority
) -> None:
    before = issuer.asked
    access = replace(access_to(backend), token=grant(issuer), ca=authority.certificate)
    async with delivering(access) as deliverer:
        await deliverer.deliver(batch(1))
        backend.next(status(401))
        assert outcomes(await deliverer.deliver(batch(1, first=1))) == ["SUCCESS"]
    assert issuer.asked == before + 2
    assert len(backend.calls) == 3


async def test_a_token_is_renewed_before_it_expires_and_serves_until_then(
    issuer: FakeIssuer, authority: Authority
) -> None:
    now = 1000.0
    credentials = ClientCredentials(
        grant(issuer), ssl.create_default_context(cafile=authority.certificate), clock=lambda: now
    )
    before = issuer.asked
    first = await credentials.token()
    now += issuer.life_s - 61
    assert await credentials.token() == first
    assert issuer.asked == before + 1
    now += 2
    issuer.outage = True
    try:
        assert await credentials.token() == first  # it is good for a minute
        now += 60
        with pytest.raises(NoTokenError, match=r"it answers 503 \(temporarily_unavailable\)"):
            await credentials.token()
    finally:
        issuer.outage = False
    now += 2
    assert await credentials.token()
    assert issuer.asked == before + 4
    await credentials.close()


async def test_an_issuer_that_gives_no_token_is_no_fault_of_a_record_and_its_secret_is_not_told(
    backend: doubles.Backend, issuer: FakeIssuer, authority: Authority
) -> None:
    access = replace(access_to(backend), token=grant(issuer, "wrong/secret"), ca=authority.certificate)
    with capture_logs() as logs:
        async with delivering(access) as deliverer:
            waits = asyncio.create_task(deliverer.deliver(batch(1)))
            await until(lambda: deliverer.target.circuit.state is not CircuitState.CLOSED)
            fault = await deliverer.target.fault() or ""
            waits.cancel()
    assert f"no token from {issuer.url}: it answers 401 (invalid_client)" in fault
    assert "wrong/secret" not in f"{fault} {logs} {access}"
    assert backend.calls == []


async def test_a_backend_may_want_a_certificate(authority: Authority) -> None:
    ours = authority.sign("sidecar", password="hush")
    served = doubles.Backend(certificate=authority.sign("backend"), client_ca=authority.certificate)
    with served.running():
        access = BackendAccess(
            served.host_url, ca=authority.certificate, certificate=ours.certificate, key=ours.key, key_password="hush"
        )
        async with delivering(access) as deliverer:
            assert outcomes(await deliverer.deliver(batch(1))) == ["SUCCESS"]
        async with delivering(BackendAccess(served.host_url)) as deliverer:
            waits = asyncio.create_task(deliverer.deliver(batch(1)))
            await until(lambda: deliverer.target.circuit.state is not CircuitState.CLOSED)
            assert "certificate" in (await deliverer.target.fault() or "")
            waits.cancel()
    assert len(served.calls) == 1


def test_certificates_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    ours = authority.sign("locked", password="hush")
    for wrong, name in (
        (BackendAccess("https://localhost", ca=tmp_path / "none.pem"), "backend_ca"),
        (BackendAccess("https://localhost", certificate=ours.certificate, key=tmp_path / "none.key"), "backend_key"),
        (
            BackendAccess("https://localhost", certificate=ours.certificate, key=ours.key, key_password="not-it"),
            "backend_certificate",
        ),
    ):
        with pytest.raises(BackendSettingsError) as refused:
            Backend(wrong)
        assert name in str(refused.value)
        assert "not-it" not in str(refused.value)


async def test_what_happens_is_counted(backend: doubles.Backend) -> None:
    def counted(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"kafka_mesh_sidecar_{name}", labels) or 0.0

    names = [("backend_calls_total", {"outcome": one}) for one in ("answered", "500", "reset", "bad_answer")]
    names += [("backend_retries_total", {"blame": one}) for one in ("unclear", "answer")]
    before = [counted(name, **labels) for name, labels in names]
    backend.next(status(500), reset, empty, answer_of(lambda _: {"status": "RETRY"}))
    async with delivering(backend, replace(POLICY, max_retries=10)) as deliverer:
        await deliverer.deliver(batch(1))
    assert [counted(name, **labels) - was for (name, labels), was in zip(names, before, strict=True)] == [
        3, 1, 1, 0, 3, 1,
    ]  # fmt: skip
    assert counted("backend_circuit", subscription="") == CircuitState.CLOSED.value
    assert counted("backend_open_calls") == 0


def access_to(backend: doubles.Backend) -> BackendAccess:
    return BackendAccess(backend.host_url, timeout=LONG_S, health_timeout=LONG_S)

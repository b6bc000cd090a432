"""Queries over HTTP/2, asked once and followed: what the server does wrong, and what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from services.sidecar.faults import Fault, FaultKind
from services.sidecar.ksqldb.active_query import ActiveQuery, AnswerLimits, Asking, QueryType
from services.sidecar.ksqldb.client import KsqldbClient, KsqldbOptions, KsqldbUnavailableError
from services.sidecar.ksqldb.row_follower import FollowedQuery, FollowLimits, NotTaken, RowFollower
from services.sidecar.ksqldb.rows import RowFormat
from tests.fixtures.ksqldb import BREAK, END, KsqldbStandIn, Script, error, error_line, ksqldb
from tests.fixtures.waiting import until

PULL = "SELECT * FROM Q WHERE ID = 1;"
PUSH = "SELECT * FROM S EMIT CHANGES;"
WAIT_S = 200.0


@pytest.fixture(scope="module")
def server() -> Iterator[KsqldbStandIn]:
    with ksqldb() as stand_in:
        yield stand_in


@pytest.fixture(autouse=True)
def _as_new(server: KsqldbStandIn) -> None:
    server.scripts.clear()
    server.asked.clear()
    server.statements.clear()


@contextlib.asynccontextmanager
async def client_of(server: KsqldbStandIn, **options: Any) -> AsyncIterator[KsqldbClient]:
    client = KsqldbClient(KsqldbOptions(server.url, **options))
    try:
        yield client
    finally:
        await client.close()


async def ask(server: KsqldbStandIn, query: ActiveQuery, **limits: Any) -> list[dict[str, Any]]:
    async with client_of(server) as client:
        return await Asking(client, AnswerLimits(**{"seconds": WAIT_S, "rows": 100, "bytes": 10_000} | limits)).ask(
            query
        )


async def test_a_pull_query_answers_its_rows_by_name(server: KsqldbStandIn) -> None:
    server.scripts[PULL] = Script([1, "a"], b'[2,"', b'b"]\n', is_push=False)
    assert await ask(server, ActiveQuery(PULL, offset="earliest")) == [{"ID": 1, "NAME": "a"}, {"ID": 2, "NAME": "b"}]
    [asked] = server.asked
    assert asked.properties == {"auto.offset.reset": "earliest"}


async def test_a_push_query_that_is_asked_once_is_ended_and_answers_what_had_come(server: KsqldbStandIn) -> None:
    server.scripts[PUSH] = Script([1, "a"], [2, "b"])
    rows = await ask(server, ActiveQuery(PUSH, QueryType.PUSH))
    assert rows == [{"ID": 1, "NAME": "a"}, {"ID": 2, "NAME": "b"}][: len(rows)]
    assert server.closed


@pytest.mark.parametrize(
    ("script", "kind", "says"),
    [
        (None, FaultKind.KSQL_IMPLEMENTATION_ERROR, r"mismatched input .*\(40001\)"),
        (Script([1, "a"], error_line(50000, "boom"), is_push=False), FaultKind.KSQL_IMPLEMENTATION_ERROR, "boom"),
        (Script(b"[1,", is_push=False), FaultKind.KSQLDB_UNAVAILABLE, "not a whole JSON value"),
        (Script([1, "a"], BREAK, is_push=False), FaultKind.KSQLDB_UNAVAILABLE, "try again"),
    ],
)
async def test_a_query_that_fails_says_the_servers_reason(
    server: KsqldbStandIn, script: Script | None, kind: FaultKind, says: str
) -> None:
    if script is not None:
        server.scripts[PULL] = script
    with pytest.raises(Fault, match=says) as failed:
        await ask(server, ActiveQuery(PULL))
    assert failed.value.kind is kind


async def test_a_server_that_is_not_ready_is_asked_again_later(server: KsqldbStandIn) -> None:
    server.refuse.append(error(50300, "KSQL is not yet ready to serve requests.", status=503))
    with pytest.raises(Fault, match="not yet ready") as failed:
        await ask(server, ActiveQuery(PULL))
    assert failed.value.kind is FaultKind.KSQLDB_UNAVAILABLE


@pytest.mark.parametrize("limits", [{"rows": 1}, {"bytes": 10}])
async def test_an_answer_is_bounded(server: KsqldbStandIn, limits: dict[str, int]) -> None:
    server.scripts[PULL] = Script([1, "a"], [2, "b"], is_push=False)
    with pytest.raises(Fault, match="narrow the query"):
        await ask(server, ActiveQuery(PULL), **limits)


async def test_a_query_that_does_not_end_is_given_up(server: KsqldbStandIn) -> None:
    server.scripts[PULL] = Script([1, "a"])
    with pytest.raises(Fault, match=r"did not end within 0\.5 s"):
        await ask(server, ActiveQuery(PULL), seconds=0.5)


async def test_a_server_that_is_not_there_is_said_to_be(server: KsqldbStandIn) -> None:
    client = KsqldbClient(KsqldbOptions("http://127.0.0.1:1"))
    with pytest.raises(KsqldbUnavailableError, match="ConnectError"):
        await client.ping()
    await client.close()


async def test_the_password_is_sent_and_never_shown(server: KsqldbStandIn) -> None:
    server.scripts[PULL] = Script([1, "a"], is_push=False)
    server.user = ("me", "secret")
    try:
        with pytest.raises(Fault, match=r"Unauthorized \(40100\)") as refused:
            await ask(server, ActiveQuery(PULL))
        assert "secret" not in str(refused.value)
        async with client_of(server, user="me", password="secret") as client:
            asking = Asking(client, AnswerLimits(WAIT_S, 100, 10_000))
            assert await asking.ask(ActiveQuery(PULL)) == [{"ID": 1, "NAME": "a"}]
    finally:
        server.user = None


# Followed


class Backend:
    """Takes rows, unless it is told otherwise."""

    def __init__(self) -> None:
        self.took: list[Any] = []
        self.refusals: list[NotTaken] = []
        self.opens = asyncio.Event()
        self.opens.set()
        self._changed = asyncio.Condition()

    async def give(self, body: bytes) -> None:
        await self.opens.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        self.took.append(json.loads(body))
        async with self._changed:
            self._changed.notify_all()

    async def has(self, condition: Callable[[list[Any]], bool]) -> None:
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(lambda: condition(self.took))


SOON = FollowLimits(first_pause=0.05, longest_pause=0.2, heartbeat=0.1, max_retries=2)


@contextlib.asynccontextmanager
async def following(
    server: KsqldbStandIn, backend: Backend, limits: FollowLimits = SOON, timeout: float = 5.0, **query: Any
) -> AsyncIterator[RowFollower]:
    async with client_of(server, timeout=timeout) as client:
        follower = RowFollower(client, FollowedQuery(PUSH, **query), limits, backend.give)
        task = asyncio.create_task(follower.run())
        try:
            yield follower
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_each_row_goes_to_the_backend_as_it_comes(server: KsqldbStandIn) -> None:
    script = server.scripts[PUSH] = Script([1, "a"])
    backend = Backend()
    async with following(server, backend) as follower:
        await backend.has(lambda took: took == [[1, "a"]])
        script.add([2, None])
        await backend.has(lambda took: took == [[1, "a"], [2, None]])
        shown = follower.details()
        assert (shown.pop("queryId"), shown) == (
            follower.following.query_id,
            {"state": "running", "rows": 2, "skipped": 0},
        )
        assert follower.following.query_id.startswith("q")
        assert await follower.fault() is None


async def test_rows_may_come_together_and_by_name(server: KsqldbStandIn) -> None:
    server.scripts[PUSH] = Script(b'[1,"a"]\n[2,"b"]\n[3,"c"]\n')
    backend = Backend()
    async with following(server, backend, batch_rows=2, row_format=RowFormat.OBJECT):
        await backend.has(lambda took: sum(map(len, took)) == 3)
    assert backend.took == [[{"ID": 1, "NAME": "a"}, {"ID": 2, "NAME": "b"}], [{"ID": 3, "NAME": "c"}]]


async def test_no_row_is_taken_from_the_server_before_the_backend_took_the_last(server: KsqldbStandIn) -> None:
    script = server.scripts[PUSH] = Script(*([number, "x" * 100_000] for number in range(1000)))
    backend = Backend()
    backend.opens.clear()
    async with following(server, backend) as follower:
        await _stands_still(lambda: script.sent)
        assert script.sent < 500, script.sent
        assert await follower.fault() is None  # signs of life go on beside it
        backend.opens.set()
        await backend.has(lambda took: len(took) == 1000)
    assert [row[0] for row in backend.took] == list(range(1000))


async def _stands_still(number: Callable[[], int]) -> None:
    """Until it has not changed for as long as three signs of life take."""
    async with asyncio.timeout(WAIT_S):
        last, since = -1, 0
        while since < 15:
            await asyncio.sleep(0.02)
            since = since + 1 if number() == last and last > 0 else 0
            last = number()


@pytest.mark.parametrize(
    "trouble", [END, BREAK, error_line(50000, "the query was terminated"), b"[1"], ids=["end", "reset", "error", "half"]
)
async def test_a_stream_that_ends_is_begun_again(server: KsqldbStandIn, trouble: Any) -> None:
    script = server.scripts[PUSH] = Script([1, "a"], trouble, *([END] if trouble == b"[1" else []))
    backend = Backend()
    async with following(server, backend):
        await backend.has(lambda took: took == [[1, "a"]])
        script.add([2, "b"])
        await backend.has(lambda took: took == [[1, "a"], [2, "b"]])
    assert len(server.asked) >= 2


async def test_it_goes_on_behind_the_last_token_whose_rows_the_backend_has(server: KsqldbStandIn) -> None:
    script = server.scripts[PUSH] = Script([1, "a"], {"continuationToken": "t1"}, [2, "b"], BREAK)
    backend = Backend()
    async with following(server, backend):
        await backend.has(lambda took: len(took) == 2)
        script.add([3, "c"])
        await backend.has(lambda took: len(took) == 3)
    first, *later = server.asked
    assert first.properties["ksql.query.push.v2.continuation.tokens.enabled"] is True
    assert (first.request_properties, later[-1].request_properties) == (
        {}, {"request.ksql.query.push.continuation.token": "t1"},
    )  # fmt: skip


async def test_a_token_that_the_server_knows_no_more_is_not_said_again(server: KsqldbStandIn) -> None:
    script = server.scripts[PUSH] = Script({"continuationToken": "old"}, [1, "a"], END)
    backend = Backend()
    async with following(server, backend):
        await backend.has(lambda took: len(took) == 1)
        server.refuse.append(error(40001, "Offset out of range"))
        script.add([2, "b"])
        await backend.has(lambda took: len(took) == 2)
    assert server.asked[-1].request_properties == {}


async def test_a_server_that_gives_no_sign_of_life_is_left(server: KsqldbStandIn) -> None:
    server.scripts[PUSH] = Script([1, "a"])
    backend = Backend()
    async with following(server, backend, timeout=0.3) as follower:
        await backend.has(lambda took: len(took) == 1)
        server.is_silent = True
        try:
            await until(lambda: follower.following.state.value == "retrying")
            assert "no answer to /info" in str(await follower.fault())
        finally:
            server.is_silent = False
        await until(lambda: follower.following.state.value == "running")


async def test_a_server_that_comes_back_is_found_again() -> None:
    stand_in = KsqldbStandIn()
    script = stand_in.scripts[PUSH] = Script([1, "a"])
    backend = Backend()
    with contextlib.ExitStack() as serving:
        serving.enter_context(ksqldb(stand_in))
        async with following(stand_in, backend):
            await backend.has(lambda took: len(took) == 1)
            await asyncio.to_thread(serving.close)
            script.add([2, "b"])
            await asyncio.to_thread(serving.enter_context, ksqldb(stand_in, port=stand_in.port))
            await backend.has(lambda took: took == [[1, "a"], [2, "b"]])


async def test_streams_and_tables_are_made_before_the_query_and_may_be_there_already(server: KsqldbStandIn) -> None:
    statements = ["CREATE STREAM S1 (ID INT) WITH (...);", "CREATE TABLE T1 (ID INT PRIMARY KEY) WITH (...);"]
    server.scripts[PUSH] = Script([1, "a"], repeats=True)
    for _ in range(2):
        backend = Backend()
        async with following(server, backend, initial_statements=statements):
            await backend.has(lambda took: len(took) == 1)
    assert server.statements == statements


async def test_a_statement_that_is_wrong_is_said_until_somebody_changes_it(server: KsqldbStandIn) -> None:
    async with following(server, Backend(), initial_statements=["DROP STREAM S;"]) as follower:
        await until(lambda: "Syntax Error" in follower.following.problem)
    assert not server.asked


async def test_what_the_backend_does_not_take_is_given_again(server: KsqldbStandIn) -> None:
    server.scripts[PUSH] = Script([1, "a"], [2, "b"])
    backend = Backend()
    backend.refusals = [NotTaken("it is down", refused=False, pause=0.05)] * 5
    async with following(server, backend) as follower:
        await backend.has(lambda took: took == [[1, "a"], [2, "b"]])
        assert follower.following.skipped == 0


async def test_what_it_refuses_for_good_is_skipped_and_counted(server: KsqldbStandIn) -> None:
    server.scripts[PUSH] = Script([1, "a"], [2, "b"])
    backend = Backend()
    backend.refusals = [NotTaken("400", refused=True)] * 3
    async with following(server, backend) as follower:
        await backend.has(lambda took: took == [[2, "b"]])
        assert follower.details()["skipped"] == 1

"""Conversions run in processes of their own, end within their bound, and leave no process behind."""

import asyncio
import json
import os
import resource
import time
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, cast

import psutil
import pytest

from mesh.compression import Codec, compress
from mesh.schemas.framing import prefix_of
from mesh.schemas.schema import RegisteredSchema, SchemaKind
from mesh.validation import Content, Rule
from services.gateway.downstream import conversion_worker, conversions
from services.gateway.downstream.conversions import Conversions
from services.gateway.downstream.exchange import Exchange
from services.gateway.requests.conversions import Convert, NotConverted, convert
from services.gateway.requests.data_keys import Found
from services.gateway.requests.plan import Answer, Close, Command, NoAnswer
from services.gateway.requests.records.opened_batches import Written, opened_batches
from services.gateway.upstream.clusters import Clusters
from services.gateway.upstream.lanes import Lanes
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.requests.test_auditing import record
from tests.unit.gateway.wire.records import batch


@pytest.fixture
async def pool() -> AsyncIterator[Conversions]:
    pool = Conversions(workers=2)
    yield pool
    await pool.stop()


async def result(pool: Conversions, function: Callable[..., Any], *arguments: Any) -> Any:
    found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pool.submit(Convert(function, arguments), found.set_result)
    return await asyncio.wait_for(found, WITHIN_S)


async def test_work_is_done_by_as_many_processes_as_are_allowed_and_none_of_them_is_ours(pool: Conversions) -> None:
    found = await asyncio.gather(*(result(pool, os.getpid) for _ in range(20)))
    assert os.getpid() not in found
    assert 1 <= len(set(found)) <= 2


async def test_large_arguments_and_results_pass(pool: Conversions) -> None:
    large = os.urandom(5_000_000)
    assert await result(pool, bytes.swapcase, large) == large.swapcase()


async def test_what_a_function_raises_harms_no_other_work(pool: Conversions) -> None:
    failed = await result(pool, divmod, 1, 0)
    assert isinstance(failed, NotConverted) and "ZeroDivisionError" in failed.reason
    assert await result(pool, divmod, 7, 2) == (3, 1)


async def test_a_process_that_dies_is_replaced(pool: Conversions) -> None:
    died = await result(pool, os._exit, 3)
    assert isinstance(died, NotConverted) and "its process ended" in died.reason
    assert await result(pool, divmod, 7, 2) == (3, 1)


async def test_what_takes_too_long_is_ended_and_its_process_too(
    pool: Conversions, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_id = await result(pool, os.getpid)
    monkeypatch.setattr(conversions, "CONVERSION_S", 0.05)
    late = await result(pool, time.sleep, 600)
    assert isinstance(late, NotConverted) and "0.05 s" in late.reason
    await until(lambda: not psutil.pid_exists(process_id), "its process is gone")


async def test_a_process_that_does_not_end_keeps_nobody_waiting(
    pool: Conversions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await result(pool, os.getpid)
    monkeypatch.setattr(conversions, "END_S", 0)
    with monkeypatch.context() as hurried:
        hurried.setattr(conversions, "CONVERSION_S", 0.05)
        async with asyncio.timeout(WITHIN_S):
            assert isinstance(await result(pool, time.sleep, 600), NotConverted)
    assert await result(pool, divmod, 7, 2) == (3, 1)


async def test_a_full_queue_refuses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversions, "MOST_WAITING", 1)
    pool = Conversions(workers=1)
    try:
        waiting = asyncio.create_task(result(pool, os.getpid))
        await asyncio.sleep(0)
        refused = await result(pool, os.getpid)
        assert isinstance(refused, NotConverted) and "wait already" in refused.reason
        assert isinstance(await waiting, int)
    finally:
        await pool.stop()


async def test_nothing_is_left_after_the_stop() -> None:
    pool = Conversions(workers=1)
    process_id = await result(pool, os.getpid)
    pool.submit(Convert(time.sleep, (600,)), lambda _: None)
    await pool.stop()
    await until(lambda: not psutil.pid_exists(process_id), "its process is gone")


async def test_a_plan_goes_on_with_what_was_converted(pool: Conversions) -> None:
    def plan() -> Generator[Command, Any, Answer]:
        found = yield from convert(divmod, 7, 2)
        failed = yield from convert(divmod, 7, 0)
        return Close(f"{found}") if isinstance(failed, NotConverted) else NoAnswer()

    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    exchange = Exchange(plan(), cast(Clusters, None), pool, Lanes(), "test", lambda _, given: answer.set_result(given))
    exchange.start()
    assert await asyncio.wait_for(answer, WITHIN_S) == Close("(3, 1)")


async def test_a_client_that_is_gone_waits_for_nothing(pool: Conversions) -> None:
    closed: list[bool] = []

    def plan() -> Generator[Command, Any, Answer]:
        try:
            yield from convert(os.getpid)
        finally:
            closed.append(True)
        return NoAnswer()

    exchange = Exchange(plan(), cast(Clusters, None), pool, Lanes(), "test", lambda _, answer: pytest.fail(str(answer)))
    exchange.start()
    exchange.abandon()
    assert closed == [True]
    assert isinstance(await result(pool, os.getpid), int), "the result of the one before has come by now, and is let be"


async def test_a_value_that_fills_the_memory_as_an_object_is_refused_and_its_process_goes_on() -> None:
    """15 million records of one byte each: 3.5 GB of dicts from a few kB, compressed."""
    pool = Conversions(workers=1)
    try:
        await refuses_bomb(pool)
    finally:
        await pool.stop()


async def refuses_bomb(pool: Conversions) -> None:
    most, hard = await result(pool, resource.getrlimit, resource.RLIMIT_AS)
    assert most == conversion_worker.MOST_MEMORY
    await result(pool, resource.setrlimit, resource.RLIMIT_AS, (most // 4, hard))  # which takes less time to fill
    item = {"type": "record", "name": "R", "fields": [{"name": "f", "type": "boolean"}]}
    schema = RegisteredSchema(7, SchemaKind.AVRO, json.dumps({"type": "array", "items": item}))
    count, left = bytearray(), 15_000_000 << 1
    while left > 0x7F:
        count.append(left & 0x7F | 0x80)
        left >>= 7
    value = prefix_of(7) + bytes([*count, left]) + bytes(15_000_001)
    data = packed_values(value)
    assert len(data) < 10_000
    written = [Written("apples", data, (Rule("named", "apples", content=Content.NAMED),))]
    before = await result(pool, os.getpid)
    (opened,) = await result(pool, opened_batches, written, Found(schemas={prefix_of(7): schema}))
    assert "can't be read as Avro" in opened.breaches[0].reason
    assert await result(pool, os.getpid) == before


def packed_values(value: bytes) -> bytes:
    return bytes(batch(compress(Codec.ZSTD, record(0, None, value, [])), attributes=Codec.ZSTD))

"""Talking to a gateway or a broker in messages of the protocol, where no client library has a word for it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from tests.fixtures.waiting import WITHIN_S
from tests.unit.gateway.downstream.raw_client import RawClient

T = TypeVar("T")

POLL_S = 0.05


@asynccontextmanager
async def talking_to(address: str) -> AsyncIterator[RawClient]:
    client = await RawClient.connect(int(address.rpartition(":")[2]))
    try:
        yield client
    finally:
        client.close()


async def comes_true(
    look: Callable[[], Awaitable[T]], wanted: T | Callable[[T], bool], what: str, within_s: float = WITHIN_S
) -> T:
    """What `look` finds when it is what is wanted: brokers show later what a controller has decided."""
    found: list[T] = []
    try:
        async with asyncio.timeout(within_s):
            while True:
                found[:] = [await look()]
                if wanted(found[0]) if callable(wanted) else found[0] == wanted:
                    return found[0]
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise TimeoutError(f"not within {within_s:g} s: {what}; at last {found}") from None

"""Data keys that a gateway keeps: for how long, what an outage changes, and how often the service is asked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mesh.protection.keys import DataKey, KeyGoneError, KeysAwayError, NoKey, Wrapped
from mesh.schemas.schema import RegisteredSchema, RegistryUnavailableError, SchemaKind, UnknownSchemaError
from services.gateway.keys.ring import AT_ONCE, FAILURE_S, LATEST_S, MOST_WAITING, KeyRing
from services.gateway.requests.data_keys import Found, LatestOf, Wanted
from tests.fixtures.waiting import until

KEPT_S = 100.0


@dataclass
class Service:
    """A service of keys by hand."""

    fault: Exception | None = None
    asked: list[str] = field(default_factory=list)
    hangs: asyncio.Event | None = None

    async def make(self, key_id: str) -> DataKey:
        await self._answer(f"make {key_id}")
        number = len(self.asked)
        return DataKey(Wrapped(key_id, b"w%d" % number), b"s%d" % number)

    async def unwrap(self, name: Wrapped) -> bytes:
        await self._answer(f"unwrap {name.wrapped.decode()}")
        return b"of " + name.wrapped

    async def _answer(self, call: str) -> None:
        self.asked.append(call)
        if self.hangs is not None:
            await self.hangs.wait()
        if self.fault is not None:
            raise self.fault

    async def close(self) -> None: ...


@dataclass
class House:
    service: Service = field(default_factory=Service)
    now: float = 1000.0
    ring: KeyRing = field(init=False)

    def __post_init__(self) -> None:
        self.ring = KeyRing(self.service, KEPT_S, clock=lambda: self.now)

    async def find(self, *names: str | Wrapped) -> Found:
        wanted = Wanted(
            frozenset(each for each in names if isinstance(each, str)),
            frozenset(each for each in names if not isinstance(each, str)),
        )
        done: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self.ring.find(wanted, done.set_result)
        return await done

    async def to_write(self) -> DataKey | NoKey:
        return (await self.find("pii")).writing["pii"]

    async def to_read(self) -> bytes | NoKey:
        return (await self.find(NAME)).reading[NAME]


NAME = Wrapped("pii", b"old")


async def test_a_data_key_serves_for_its_time_and_another_one_comes_after_half_of_it() -> None:
    house = House()
    first = await house.to_write()
    house.now += KEPT_S / 2
    assert await house.to_write() is first
    house.now += 1
    assert await house.to_write() is first, "nobody waits for the next one"
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = await house.to_write()
    assert isinstance(second, DataKey)
    assert second is not first
    assert await house.find(second.name) == Found({}, {second.name: second.secret}), "what it wrote it can read"
    assert house.service.asked == ["make pii", "make pii"]


async def test_what_was_unwrapped_serves_through_an_outage_until_its_time_is_over() -> None:
    house = House()
    assert await house.to_read() == b"of old"
    written = await house.to_write()
    house.service.fault = KeysAwayError("no answer")
    house.now += KEPT_S
    assert await house.to_read() == b"of old"
    assert await house.to_write() is written
    house.now += 1
    assert await house.to_read() == NoKey("no answer", is_gone=False)
    assert await house.to_write() == NoKey("no answer", is_gone=False)
    asked = len(house.service.asked)
    assert await house.to_read() == NoKey("no answer", is_gone=False)
    assert len(house.service.asked) == asked, "it is not asked again at once"
    house.service.fault = None
    house.now += FAILURE_S + 1
    assert await house.to_read() == b"of old"


async def test_a_key_that_is_gone_takes_effect_within_the_time() -> None:
    house = House()
    await house.to_write()
    await house.to_read()
    house.service.fault = KeyGoneError("gone")
    house.now += KEPT_S / 2 + 1
    await house.to_write()
    for _ in range(3):
        await asyncio.sleep(0)
    assert await house.to_write() == NoKey("gone", is_gone=True), "writing stops at the first word of it"
    assert await house.to_read() == b"of old"
    house.now += KEPT_S / 2
    assert await house.to_read() == NoKey("gone", is_gone=True)


async def test_many_requests_ask_once_and_a_fault_of_a_plug_in_is_an_answer() -> None:
    house = House()
    house.service.hangs = asyncio.Event()
    asking = [asyncio.ensure_future(house.to_read()) for _ in range(50)]
    await until(lambda: house.service.asked)
    assert house.service.asked == ["unwrap old"]
    house.service.hangs.set()
    assert await asyncio.gather(*asking) == [b"of old"] * 50
    assert house.service.asked == ["unwrap old"]
    house.service.fault = ZeroDivisionError("secret text")
    assert await house.to_write() == NoKey("the service of keys has failed: ZeroDivisionError", is_gone=False)


async def test_a_service_that_hangs_gets_a_bounded_number_of_questions() -> None:
    house = House()
    house.service.hangs = asyncio.Event()
    names = [Wrapped("pii", b"%d" % number) for number in range(MOST_WAITING + 10)]
    asking = asyncio.ensure_future(house.find(*names))
    await until(lambda: len(house.service.asked) >= AT_ONCE)
    assert len(house.service.asked) == AT_ONCE
    house.service.hangs.set()
    found = (await asking).reading
    assert sum(isinstance(each, NoKey) and not each.is_gone for each in found.values()) == 10, "there was no room"
    assert found[names[0]] == b"of 0"


@dataclass
class Registry:
    """A registry by hand: the number of the answer is the version."""

    fault: Exception | None = None
    asked: int = 0

    def latest(self, subject: str) -> RegisteredSchema:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return RegisteredSchema(self.asked, SchemaKind.JSON, "{}", subject=subject, version=self.asked)


async def test_the_latest_schema_is_asked_again_after_a_time_nobody_waits_and_it_counts_through_an_outage() -> None:
    house, registry = House(), Registry()
    house.ring._registry = registry  # type: ignore[assignment]
    question = LatestOf("orders")

    async def version() -> int | None:
        done: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        house.ring.find(Wanted(latest=frozenset([question])), done.set_result)
        found = (await done).latest[question]
        return found.version if isinstance(found, RegisteredSchema) else None

    registry.fault = RegistryUnavailableError("away")
    assert await version() is None
    house.now += FAILURE_S + 1
    registry.fault = None
    assert (await version(), await version(), registry.asked) == (2, 2, 2)
    house.now += LATEST_S + 1
    assert await version() == 2, "nobody waits"
    await until(lambda: registry.asked == 3 and not house.ring._asking)
    assert await version() == 3
    house.now += LATEST_S + 1
    registry.fault = UnknownSchemaError("it is gone")
    for _ in range(3):
        assert await version() == 3
        await until(lambda: not house.ring._asking)
    assert registry.asked == 4, "a failure is not asked about again at once"

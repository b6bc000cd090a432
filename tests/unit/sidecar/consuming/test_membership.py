"""A member whose coordinator is on its way asks again where to begin: its client alone would wait without end."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from services.sidecar.consuming.client_properties import instance_properties
from services.sidecar.consuming.instance_values import InstanceId, InstanceOptions, Interest
from services.sidecar.consuming.membership import Membership
from services.sidecar.faults import Fault
from services.sidecar.formats import Format
from services.sidecar.records import Partition
from tests.unit.gateway.scripted_broker import ScriptedBroker
from tests.unit.sidecar.consuming.scripted_coordinator import (
    COMMITTED,
    COORDINATOR_LOAD_IN_PROGRESS,
    TOPIC,
    Coordinator,
    scripted_broker,
)

NOT_COORDINATOR = 16
GROUP_AUTHORIZATION_FAILED = 30
WITHIN_SECONDS = 30.0
BY_HAND = Interest(partitions=tuple(Partition(TOPIC, one) for one in COMMITTED))
SHARED = Interest(topics=(TOPIC,))


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker() as broker:
        yield broker


def read(bootstrap: str, interest: Interest, strategy: str, faults: list[Fault]) -> list[bytes | None]:
    """What a member reads until it has a record of each partition; collects what it says is wrong."""
    options = InstanceOptions(Format.STRING, Format.STRING, read_timeout=1.0)
    base = {"bootstrap.servers": bootstrap, "partition.assignment.strategy": strategy}
    properties = instance_properties(base, InstanceId("group", "c1"), options)
    membership = Membership(properties, lambda _gone: None, lambda _commits: None)
    until = time.monotonic() + WITHIN_SECONDS
    values: list[bytes | None] = []
    try:
        membership.follow(interest)
        while len(values) < len(COMMITTED):
            assert time.monotonic() < until, f"only {values} of {len(COMMITTED)} partitions"
            if (message := membership.poll(0.05)) is not None:
                values.append(message.value())
            if membership.has_failed and (fault := membership.fault()) is not None:
                faults.append(fault)
    finally:
        membership.close()
    return sorted(values, key=str)


@pytest.mark.parametrize("error", [NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.parametrize(
    ("interest", "strategy"), [(BY_HAND, "range"), (SHARED, "range"), (SHARED, "cooperative-sticky")]
)
async def test_a_coordinator_on_its_way_is_asked_again(
    broker: ScriptedBroker, interest: Interest, strategy: str, error: int
) -> None:
    coordinator = Coordinator(broker, [error, error])
    broker.scripts = coordinator.scripts()
    faults: list[Fault] = []
    assert await asyncio.to_thread(read, broker.address, interest, strategy, faults) == [b"r0", b"r1"]
    assert (coordinator.errors, faults) == ([], [])


async def test_a_group_that_is_refused_says_so_and_goes_on_when_it_is_not(broker: ScriptedBroker) -> None:
    coordinator = Coordinator(broker, [GROUP_AUTHORIZATION_FAILED])
    broker.scripts = coordinator.scripts()
    faults: list[Fault] = []
    assert await asyncio.to_thread(read, broker.address, BY_HAND, "range", faults) == [b"r0", b"r1"]
    (fault,) = faults
    assert "authorization" in fault.description.lower()

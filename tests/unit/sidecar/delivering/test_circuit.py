"""When a backend is left in peace, when it is tried again, and who may."""

import asyncio
import math
from dataclasses import dataclass, field

import pytest

from services.sidecar.delivering.circuit import Circuit, CircuitSettings, CircuitState
from services.sidecar.delivering.gate import Gate

SETTINGS = CircuitSettings(open_after=3, pause=1.0, max_pause=4.0, most_given_up=2, most_refused=3)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class World:
    """A circuit whose pauses are as long as they may be."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.circuit = Circuit(SETTINGS, self.clock, between=lambda _, most: most)

    def fails(self, times: int = 1) -> None:
        for _ in range(times):
            self.circuit.failed(self.circuit.begin(), "it is away")

    def after(self, seconds: float) -> CircuitState:
        self.clock.now += seconds
        return self.circuit.state


@pytest.fixture
def world() -> World:
    return World()


def test_failures_in_a_row_open_it(world: World) -> None:
    world.fails(2)
    assert (world.circuit.state, world.circuit.wait()) == (CircuitState.CLOSED, 0)
    world.fails()
    assert (world.circuit.state, world.circuit.wait()) == (CircuitState.OPEN, 1.0)
    assert world.circuit.reason == "it is away"


def test_a_call_that_passes_between_them_starts_the_row_anew(world: World) -> None:
    world.fails(2)
    world.circuit.passed(world.circuit.begin())
    world.fails(2)
    assert world.circuit.state is CircuitState.CLOSED


def test_one_call_at_a_time_finds_out_whether_it_is_back(world: World) -> None:
    world.fails(3)
    assert world.after(1.0) is CircuitState.HALF_OPEN
    probe = world.circuit.begin()
    assert probe.is_probe
    assert world.circuit.wait() == math.inf
    world.circuit.passed(probe)
    assert (world.circuit.state, world.circuit.wait(), world.circuit.reason) == (CircuitState.CLOSED, 0, "")


def test_pauses_double_up_to_a_bound_and_begin_anew_once_it_was_back(world: World) -> None:
    pauses = []
    world.fails(3)
    for _ in range(4):
        pauses.append(world.circuit.wait())
        assert world.after(world.circuit.wait()) is CircuitState.HALF_OPEN
        world.fails()
    assert pauses == [1.0, 2.0, 4.0, 4.0]
    world.after(world.circuit.wait())
    world.circuit.passed(world.circuit.begin())
    world.fails(3)
    assert world.circuit.wait() == 1.0


def test_a_probe_that_nobody_knows_the_end_of_makes_way_for_the_next(world: World) -> None:
    world.fails(3)
    world.after(1.0)
    world.circuit.abandoned(world.circuit.begin())
    assert world.circuit.wait() == 0
    assert world.circuit.begin().is_probe


def test_calls_that_began_before_it_opened_fail_without_another_pause(world: World) -> None:
    permits = [world.circuit.begin() for _ in range(5)]
    for permit in permits:
        world.circuit.failed(permit, "it is away")
    assert world.circuit.wait() == 1.0


def test_a_call_that_began_before_it_opened_and_passes_closes_it(world: World) -> None:
    late = world.circuit.begin()
    world.fails(3)
    world.circuit.passed(late)
    assert (world.circuit.state, world.circuit.wait()) == (CircuitState.CLOSED, 0)


def test_a_backend_that_is_busy_has_its_time_and_is_not_failing(world: World) -> None:
    for _ in range(10):
        world.circuit.busy(world.circuit.begin(), 7.0, "too many requests")
    assert (world.circuit.state, world.circuit.wait()) == (CircuitState.CLOSED, 7.0)
    world.after(7.0)
    assert world.circuit.wait() == 0


def test_a_backend_that_refuses_record_after_record_gets_them_slower_and_slower(world: World) -> None:
    circuit = world.circuit
    for _ in range(3):
        circuit.answered(circuit.begin())
        circuit.refused(1, "400")
    assert circuit.state is CircuitState.CLOSED
    waits = []
    for _ in range(4):
        circuit.answered(circuit.begin())
        circuit.refused(1, "400")
        waits.append(circuit.wait())
        world.after(waits[-1])
    assert waits == [1.0, 2.0, 4.0, 4.0]
    circuit.passed(circuit.begin())
    circuit.answered(circuit.begin())
    circuit.refused(3, "400")
    assert circuit.state is CircuitState.CLOSED


def test_records_given_up_in_a_row_are_believed_to_be_poison_only_so_often(world: World) -> None:
    believed = []
    for _ in range(3):
        believed.append(world.circuit.believes_in_poison)
        world.circuit.answered(world.circuit.begin())
        world.circuit.gave_up(1)
    assert (believed, world.circuit.turns) == ([True, True, False], 1)
    for _ in range(2):
        world.circuit.passed(world.circuit.begin())
        assert (world.circuit.believes_in_poison, world.circuit.turns) == (True, 2)


class LoopClock:
    """The event loop's time, which stands still at first."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stands_at: float | None = self._loop.time()

    def __call__(self) -> float:
        return self._loop.time() if self._stands_at is None else self._stands_at

    def goes_on(self) -> None:
        self._stands_at = None


@dataclass
class Away:
    """A gate before a backend that has failed; nobody is let in before the clock goes on."""

    clock: LoopClock = field(default_factory=LoopClock)

    def __post_init__(self) -> None:
        self.circuit = Circuit(CircuitSettings(open_after=1, pause=0.001, max_pause=0.001), self.clock)
        self.gate = Gate(self.circuit)
        self.circuit.failed(self.circuit.begin(), "it is away")

    async def all_wait(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.gate.waiting < count:
                await asyncio.sleep(0)


async def test_who_waits_goes_in_turn_so_that_who_fails_lets_the_others_try() -> None:
    away = Away()
    circuit, gate = away.circuit, away.gate
    tried: list[str] = []

    async def lane(name: str, *, is_poison: bool) -> None:
        while True:
            permit = await gate.enter()
            tried.append(name)
            if not is_poison:
                circuit.passed(permit)
                gate.look()
                return
            circuit.failed(permit, "it fails again")
            gate.look()
            if len(tried) > 10:
                return

    poison = asyncio.create_task(lane("poison", is_poison=True))
    good = asyncio.create_task(lane("good", is_poison=False))
    await away.all_wait(2)
    away.clock.goes_on()
    await asyncio.wait_for(good, 10)
    assert tried[:2] == ["poison", "good"]
    await asyncio.wait_for(poison, 10)


async def test_who_gives_up_waiting_takes_nobodys_turn() -> None:
    away = Away()
    circuit, gate = away.circuit, away.gate
    impatient, patient = asyncio.create_task(gate.enter()), asyncio.create_task(gate.enter())
    await away.all_wait(2)
    impatient.cancel()
    away.clock.goes_on()
    permit = await asyncio.wait_for(patient, 10)
    assert permit.is_probe
    waits = asyncio.create_task(gate.enter())
    await away.all_wait(1)
    assert not waits.done()
    circuit.passed(permit)
    gate.look()
    assert not (await asyncio.wait_for(waits, 10)).is_probe

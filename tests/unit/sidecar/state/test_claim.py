"""Two processes of one name on one state folder: the younger one comes to hold it, whatever the elder does."""

import asyncio
from pathlib import Path

import pytest

from services.sidecar.state import claim as identity
from services.sidecar.state.claim import Claim, Incarnation, take_over, watch

ELDER, YOUNGER = Incarnation(1_000, "zz"), Incarnation(2_000, "aa")
LONG = 60.0


@pytest.fixture(autouse=True)
def _short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "LOOK_SECONDS", 0.01)


def claim(folder: Path, incarnation: Incarnation) -> Claim:
    return Claim(folder / "new", incarnation)


def test_the_one_that_began_later_is_the_younger() -> None:
    assert ELDER < YOUNGER
    assert Incarnation(1_000, "a") < Incarnation(1_000, "b")
    assert Incarnation.parse(f"{ELDER}\n") == ELDER
    assert Incarnation.parse("yesterday") is None
    assert Incarnation.beginning() >= Incarnation(1_700_000_000_000, "")


async def test_the_elder_gives_way_and_the_younger_waits_for_it(tmp_path: Path) -> None:
    elder, younger = claim(tmp_path, ELDER), claim(tmp_path, YOUNGER)
    steps: list[str] = []

    async def superseded() -> None:
        steps.append("the elder closes its instances")
        assert not await asyncio.to_thread(younger.lock)
        steps.append("the elder has closed them")

    await take_over(elder, LONG)
    watching = asyncio.create_task(watch(elder, superseded))
    await take_over(younger, LONG)
    steps.append("the younger goes on")
    assert steps == ["the elder closes its instances", "the elder has closed them", "the younger goes on"]
    assert elder.is_lost()
    assert not younger.is_lost()
    watching.cancel()


async def test_an_elder_that_hangs_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    elder, younger = claim(tmp_path, ELDER), claim(tmp_path, YOUNGER)
    await take_over(elder, LONG)
    await take_over(younger, 0.05)
    assert elder.is_lost()


async def test_an_elder_that_ended_is_not_waited_for(tmp_path: Path) -> None:
    elder, younger = claim(tmp_path, ELDER), claim(tmp_path, YOUNGER)
    await take_over(elder, LONG)
    elder.let_go()
    await take_over(younger, LONG)
    assert younger.lock()


async def test_who_begins_later_is_the_younger_though_the_clock_was_put_back(tmp_path: Path) -> None:
    first, second = claim(tmp_path, YOUNGER), claim(tmp_path, ELDER)
    await take_over(first, LONG)
    first.let_go()
    await take_over(second, LONG)
    assert first.is_lost()
    assert second.incarnation > YOUNGER
    assert not second.is_lost()


async def test_a_claim_that_nobody_wrote_so_is_no_claim(tmp_path: Path) -> None:
    mine = claim(tmp_path, ELDER)
    await take_over(mine, LONG)
    (tmp_path / "new" / "claim").write_bytes(b"\xff\xfe nonsense")
    assert not mine.is_lost()

"""The judge restarts what ended by itself, and nothing that a fault ends."""

import threading
from pathlib import Path

import psutil
import pytest

from judge.systems import processes
from judge.systems.processes import Keeper, Owned
from tests.fixtures.waiting import wait_until

RESTARTS = 20


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Owned:
    monkeypatch.setattr(processes, "KEEP_S", 0.0001)
    return Owned("sleeper", ["sleep", "60"], tmp_path / "log", lambda: True, {})


def kept(part: Owned) -> tuple[Keeper, threading.Thread]:
    keeper = Keeper([part])
    thread = threading.Thread(target=keeper.run)
    thread.start()
    return keeper, thread


def test_a_restart_leaves_one_process(part: Owned) -> None:
    """The judge's hour had two gateways of one name: one was started while a fault ended the one before."""
    before = {child.pid for child in psutil.Process().children()}
    keeper, thread = kept(part)
    try:
        for _ in range(RESTARTS):
            part.start()
            part.stop()
        part.start()
        alive = {child.pid for child in psutil.Process().children() if child.is_running()} - before
        assert alive == {part.pid()}
    finally:
        keeper.stop.set()
        thread.join()
        part.kill()


def test_a_process_that_ended_by_itself_is_started_again(part: Owned) -> None:
    keeper, thread = kept(part)
    part.start()
    first = part.pid()
    assert first is not None
    try:
        psutil.Process(first).kill()
        wait_until(lambda: part.pid() not in (None, first), "another process is there")
    finally:
        keeper.stop.set()
        thread.join()
        part.kill()

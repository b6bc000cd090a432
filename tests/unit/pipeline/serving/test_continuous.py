"""A continuous job is started again whenever its driver ends."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from services.pipeline.serving import continuous
from services.pipeline.serving.continuous import FAILURES_TO_TELL, ContinuousDriver
from services.pipeline.serving.driver import Command, Driver
from tests.fixtures.waiting import until

COMES_S = 30.0
DIES = "import sys; open(sys.argv[3], 'a').write('x'); sys.exit('the cluster is away')"
TELLS = """
import sys, time
while True:
    print('{"job_report": {"job": "audit"}}', flush=True)
    open(sys.argv[3], 'a').write('x')
    time.sleep(0.01)
"""
HANGS = TELLS.replace('"audit"', '"audit", "stuck_s": 1000.0')
RUNS = "import sys, signal; open(sys.argv[3], 'a').write('x'); signal.pause()"


def job(file: Path, program: str, silence_s: float = math.inf) -> ContinuousDriver:
    file.touch()
    arguments, start = ("run", "audit", str(file)), (sys.executable, "-c", program)
    return ContinuousDriver(Command("audit", "audit", arguments, program=start, silence_s=silence_s))


def hangs() -> float:
    return REGISTRY.get_sample_value("kafka_mesh_pipeline_driver_hangs_total", {"job": "audit"}) or 0.0


async def until_started(file: Path, times: int) -> None:
    await until(lambda: file.stat().st_size >= times, f"it has started {times} times")


async def test_it_is_started_again_and_says_when_that_does_not_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous, "FIRST_PAUSE_S", 0.01)
    driver = job(tmp_path / "starts", DIES)
    task = asyncio.create_task(driver.run())
    await until_started(tmp_path / "starts", 1)
    assert driver.trouble == ""
    await until_started(tmp_path / "starts", 5)
    assert driver.trouble.startswith("job audit: its driver exited with 1: the cluster is away (")
    await driver.stop(COMES_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_driver_that_hangs_is_killed_and_another_one_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous, "FIRST_PAUSE_S", 0.01)
    driver = job(tmp_path / "starts", RUNS, silence_s=0.01)
    before = hangs()
    task = asyncio.create_task(driver.run())
    await until(lambda: driver.trouble, "it has been started again and again")
    assert driver.trouble.startswith("job audit: its driver was ended by SIGKILL: it reported no progress for 0.01 s (")
    assert hangs() >= before + FAILURES_TO_TELL
    await driver.stop(COMES_S)
    await asyncio.wait_for(task, COMES_S)


async def test_a_driver_that_speaks_while_its_batch_hangs_is_killed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous, "FIRST_PAUSE_S", 0.01)
    before = hangs()
    driver = job(tmp_path / "said", HANGS, silence_s=500.0)
    task = asyncio.create_task(driver.run())
    await until(lambda: hangs() >= before + 2, "two drivers in a row are killed")
    driver.kill()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_driver_that_reports_is_left_alone(tmp_path: Path) -> None:
    driver = job(tmp_path / "starts", TELLS, silence_s=COMES_S)
    task = asyncio.create_task(driver.run())
    await until_started(tmp_path / "starts", 3)
    assert driver.has_driver
    assert driver.trouble == ""
    await driver.stop(COMES_S)
    await asyncio.wait_for(task, COMES_S)


async def test_stopped_it_is_not_started_again(tmp_path: Path) -> None:
    driver = job(tmp_path / "starts", RUNS)
    task = asyncio.create_task(driver.run())
    await until_started(tmp_path / "starts", 1)
    await driver.stop(COMES_S)
    await asyncio.wait_for(task, COMES_S)
    assert (tmp_path / "starts").read_text() == "x"


async def test_stopped_while_its_driver_is_being_started_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = job(tmp_path / "starts", RUNS)
    start = Driver.started

    async def started(command: Command) -> Driver:
        made = await start(command)
        await driver.stop(COMES_S)
        return made

    monkeypatch.setattr(Driver, "started", started)
    await asyncio.wait_for(driver.run(), COMES_S)


async def test_a_driver_that_can_not_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuous, "FIRST_PAUSE_S", 0.01)
    driver = job(tmp_path / "starts", RUNS)
    start, times = Driver.started, 0

    async def started(command: Command) -> Driver:
        nonlocal times
        times += 1
        if times <= FAILURES_TO_TELL:
            raise OSError("Resource temporarily unavailable")
        return await start(command)

    monkeypatch.setattr(Driver, "started", started)
    task = asyncio.create_task(driver.run())
    await until_started(tmp_path / "starts", 1)
    text = "job audit: its driver can't be started: Resource temporarily unavailable (3 times in a row)"
    assert driver.trouble == text
    await driver.stop(COMES_S)
    await asyncio.wait_for(task, COMES_S)

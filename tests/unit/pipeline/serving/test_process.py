"""The member as a whole, with a control that is not there: its jobs go on, and whether they do is its readiness."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mesh.lifecycle import Lifecycle, Phase
from services.pipeline.serving import continuous, process
from services.pipeline.serving.driver import Command
from services.pipeline.serving.process import Member, continuous_command, serve
from services.pipeline.settings import ContinuousJob, PipelineSettings
from tests.fixtures.waiting import until

COMES_S = 30.0
NOWHERE = "127.0.0.1:1"
RUNS = "import sys, signal; open(sys.argv[1], 'a').write('x'); signal.pause()"
DEAF = "import sys, signal; signal.signal(15, signal.SIG_IGN); open(sys.argv[1], 'a').write('x'); signal.pause()"
DIES = "import sys; open(sys.argv[1], 'a').write('x'); sys.exit('Error: the table is gone')"


@asynccontextmanager
async def serving(file: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lifecycle]:
    """serve with a job whose driver is `program`; told to stop at the end."""
    monkeypatch.setattr(continuous, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(process, "READINESS_S", 0.01)
    command = Command("audit", "audit", (str(file),), program=(sys.executable, "-c", program))
    monkeypatch.setattr(process, "continuous_command", lambda *_: command)
    settings = PipelineSettings(
        control_addresses=(NOWHERE,), metrics_listen="127.0.0.1:0", jobs=(ContinuousJob.AUDIT,), driver_stop_s=COMES_S
    )
    lifecycle = Lifecycle()
    task = asyncio.create_task(serve(settings, NOWHERE, lifecycle))
    try:
        yield lifecycle
    finally:
        lifecycle.stop()
        await asyncio.wait_for(task, COMES_S)


async def until_started(file: Path, times: int) -> None:
    await until(lambda: file.exists() and file.stat().st_size >= times, f"it has started {times} times")


async def until_phase(lifecycle: Lifecycle, phase: Phase) -> None:
    await until(lambda: lifecycle.phase is phase, f"it is {phase.name}")


async def test_it_is_ready_though_control_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path / "starts", RUNS, monkeypatch) as lifecycle:
        await until_started(tmp_path / "starts", 1)
        await until_phase(lifecycle, Phase.READY)
    assert (tmp_path / "starts").read_text() == "x"


async def test_a_job_that_cannot_be_kept_running_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path / "starts", DIES, monkeypatch) as lifecycle:
        await until_phase(lifecycle, Phase.NOT_READY)
        assert lifecycle.reason.startswith("job audit: its driver exited with 1: the table is gone (")


async def test_an_elder_process_ends_its_jobs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = tmp_path / "starts"
    command = Command("audit", "audit", (str(starts),), program=(sys.executable, "-c", DEAF))
    monkeypatch.setattr(process, "continuous_command", lambda *_: command)
    member = Member(PipelineSettings(control_addresses=(NOWHERE,), jobs=(ContinuousJob.AUDIT,)), NOWHERE)
    running = asyncio.create_task(member.run())
    await until_started(starts, 1)

    member._give_way("a younger process of 'pipeline-1' follows its replays")

    await until(lambda: not any(job.has_driver for job in member._jobs), "no driver is left")
    assert member.trouble == "a younger process of 'pipeline-1' follows its replays"
    running.cancel()
    await member.stop()
    assert starts.read_text() == "x"


def test_jobs_are_commands_that_one_could_type() -> None:
    settings = PipelineSettings(
        jobs=(ContinuousJob.ARCHIVE,), archive_folder="/data/fruit", archive_topics=("apples", "bananas")
    )
    assert continuous_command(ContinuousJob.AUDIT, settings, "here:9092").arguments == ("run", "audit", "--continuous")
    archive = " ".join(continuous_command(ContinuousJob.ARCHIVE, settings, "here:9092").arguments)
    assert archive == "run archive apples bananas --to /data/fruit --bootstrap here:9092 --continuous"


def test_an_archive_without_a_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="archive_folder and archive_topics"):
        PipelineSettings(jobs=(ContinuousJob.ARCHIVE,))

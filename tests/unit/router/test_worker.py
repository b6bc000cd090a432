"""The worker process: told, heard, started again."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence

import pytest

from mesh.rpc import record_rules
from services.router.agents.worker import Worker
from services.router.forwarding.orders import Order, Progress, Report, RuleEnded, RunRule, StopRule

COMMAND = (sys.executable, "-m", "tests.unit.router.scripted_worker")


def run(rule_id: str, manner: str = "obeys") -> RunRule:
    mirror = record_rules.MirrorSpec(source_cluster="c1", target_cluster="c2", topic=manner)
    return RunRule(record_rules.RecordRuleSpec(record_rule_id=rule_id, mirror=mirror), revision=4, created=1)


class Employer:
    """Starts a worker, tells each new process `first`, and keeps what happens in order."""

    def __init__(self, *first: Order, command: Sequence[str] = COMMAND) -> None:
        self.first = list(first)
        self.starts = 0
        self.said: asyncio.Queue[Report | str] = asyncio.Queue()
        self.worker = Worker(command, self._started, self.said.put_nowait, self.said.put_nowait)

    def _started(self) -> None:
        self.starts += 1
        self.worker.send(self.first)

    async def hears(self) -> Report | str:
        return await asyncio.wait_for(self.said.get(), 60)


@contextlib.asynccontextmanager
async def working(employer: Employer) -> AsyncIterator[Employer]:
    task = asyncio.create_task(employer.worker.run())
    yield employer
    task.cancel()
    await asyncio.wait([task])
    assert not employer.worker.is_there


async def test_it_is_told_its_rules_and_says_how_far_they_are() -> None:
    async with working(Employer(run("m"))) as employer:
        progress = await employer.hears()
        assert isinstance(progress, Progress)
        assert (progress.progress.record_rule_id, progress.progress.revision) == ("m", 4)
        employer.worker.send([StopRule("m")])
        assert await employer.hears() == RuleEnded("m")


async def test_one_that_ends_is_followed_by_another_that_is_told_everything() -> None:
    async with working(Employer(run("m", "crashes"))) as employer:
        ended = await employer.hears()
        assert isinstance(ended, str)
        assert "exit 3" in ended
        employer.first = [run("m")]
        assert isinstance(await employer.hears(), Progress)
        assert employer.starts == 2


async def test_one_that_is_killed_is_followed_by_another() -> None:
    async with working(Employer(run("m"))) as employer:
        assert isinstance(await employer.hears(), Progress)
        employer.worker.kill("a test wants it")
        ended = await employer.hears()
        assert isinstance(ended, str)
        assert "exit -9" in ended
        assert isinstance(await employer.hears(), Progress)


async def test_a_program_that_is_not_there_is_a_reason_and_no_end() -> None:
    async with working(Employer(command=["/no/such/program"])) as employer:
        ended = await employer.hears()
        assert isinstance(ended, str)
        assert "can't be started" in ended


@pytest.mark.parametrize("speech", ["print('no json')", "print('{}')", "import sys; sys.stdout.write('[1]\\n')"])
async def test_nonsense_is_passed_over(speech: str) -> None:
    async with working(Employer(command=[sys.executable, "-c", speech])) as employer:
        assert isinstance(await employer.hears(), str)

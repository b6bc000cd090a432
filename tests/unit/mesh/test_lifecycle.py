"""The life of a service: what a process that does not come to its end says about why."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from mesh.lifecycle import EXIT_STUCK

DEAF = """
import asyncio
from mesh.lifecycle import run
from mesh.telemetry import configure_logging

async def last_words() -> None:
    await asyncio.get_running_loop().create_future()

async def deaf(lifecycle) -> None:
    lifecycle.ready()
    await lifecycle.stopping.wait()
    await asyncio.wait_for(last_words(), None)

configure_logging("deaf", json=True)
run(deaf, stop_timeout=0.1)
"""


def test_a_drain_that_takes_too_long_is_ended_and_says_what_it_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["event"] == "ready"
        process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in process.stdout]
    assert process.returncode == EXIT_STUCK
    assert [line["event"] for line in lines] == ["draining", "drain took too long, ending the process"]
    (waiting,) = [each for each in lines[-1]["waiting"] if "deaf" in each]
    assert "_supervised lifecycle.py:" in waiting
    assert "last_words <string>:7" in waiting


ENDLESS_THREAD = """
import threading
from concurrent.futures import ThreadPoolExecutor
from mesh.lifecycle import run
from mesh.telemetry import configure_logging

def commit():
    threading.Event().wait()

async def main(lifecycle) -> None:
    ThreadPoolExecutor(1, "commits").submit(commit)
    {ending}

configure_logging("main", json=True)
run(main, stop_timeout=0.5)
"""


@pytest.mark.parametrize("ending", ["return", "raise RuntimeError('no port')"])
def test_a_thread_that_never_returns_does_not_keep_its_process_and_is_named(ending: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDLESS_THREAD.format(ending=ending)], stderr=subprocess.PIPE, timeout=60, check=False
    )
    last = json.loads(ended.stderr.splitlines()[-1])
    assert ended.returncode == EXIT_STUCK
    assert last["event"] == "threads took too long, ending the process"
    (waiting,) = last["waiting"]
    assert waiting.startswith("commits_0: ")
    assert "commit <string>:8" in waiting

"""What a driver does that no job has to know of: it ends with serve, and its stdout is for reports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

ENDS_S = 30.0
STAND_IN = """
import subprocess, sys, time
from services.pipeline.driver import end_when_orphaned, keep_stdout_for_reports
end_when_orphaned()
keep_stdout_for_reports()
order = sys.stdin.readline()
child = subprocess.Popen(["sh", "-c", "echo from a child; exec sleep 600"])  # as Spark's JVM
print("report of", order.strip(), child.pid, flush=True)
time.sleep(600)
"""


@contextmanager
def driver() -> Iterator[subprocess.Popen[str]]:
    """A process that does what `driving.main` does before a job begins, with a child."""
    with subprocess.Popen(
        [sys.executable, "-c", STAND_IN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write("order 1\n")
            process.stdin.flush()
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_it_ends_with_all_its_children_when_serve_is_gone() -> None:
    with driver() as process:
        assert process.stdin is not None and process.stdout is not None
        child = psutil.Process(int(process.stdout.readline().split()[-1]))
        assert process.poll() is None

        process.stdin.close()  # as the kernel does when serve is killed

        assert process.wait(ENDS_S) == -signal.SIGKILL
        child.wait(ENDS_S)


def test_an_order_is_read_and_reports_are_all_that_stdout_has() -> None:
    with driver() as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("report of order 1 ")
        assert process.stderr.readline() == "from a child\n"
        process.stdin.close()
        assert process.stdout.read() == ""

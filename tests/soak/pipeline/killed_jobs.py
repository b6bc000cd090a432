"""A job of the pipeline as a process that can be killed with all that belongs to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from local.leash import on_leash
from tests.soak.pipeline.serves import command_of

START_S = 600.0
STOP_S = 60.0
LOOK_S = 0.002
"""Between two looks for the moment: some last a few milliseconds."""


class KilledJob:
    """`kafka-mesh pipeline run ...` as a process group of its own; settings are those of the environment."""

    def __init__(self, log: Path, *arguments: str, **settings: str) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                on_leash([sys.executable, "-m", "services.pipeline", "run", *arguments]),
                env=os.environ | {f"KAFKA_MESH_PIPELINE_{name}": value for name, value in settings.items()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill_when(self, moment: Callable[[], bool], what: str) -> None:
        try:
            self.reaches(moment, what)
        finally:
            self.kill()

    def reaches(self, moment: Callable[[], bool], what: str) -> None:
        """Returns within milliseconds of the moment."""
        deadline = time.monotonic() + START_S
        while not moment():
            assert self.runs, f"ended before {what}:\n{self.said}"
            assert time.monotonic() < deadline, f"not within {START_S:g} s: {what}"
            time.sleep(LOOK_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_workers(self) -> bool:
        """Whether Spark runs Python for it."""
        found = psutil.Process(self.pid).children(recursive=True)
        return any("pyspark.daemon" in word for each in found for word in command_of(each))

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text()[-3000:]

    def kill(self) -> None:
        if self.runs:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_S)

    def finish(self) -> None:
        try:
            assert self._process.wait(START_S + STOP_S) == 0, self.said
        finally:
            self.kill()

    def fails(self, within_s: float) -> str:
        """The end of its log, once it has ended by itself with an error."""
        try:
            assert self._process.wait(within_s) == 1, self.said
        finally:
            self.kill()
        return self.said

    def stop(self) -> None:
        """In order."""
        self._process.terminate()
        self.finish()


def has_any(folder: Path, pattern: str) -> bool:
    """Whether there is such a file, in folders that a job makes and removes meanwhile."""
    with suppress(FileNotFoundError):
        return any(folder.glob(pattern))
    return False

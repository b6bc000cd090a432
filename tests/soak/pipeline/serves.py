"""`kafka-mesh pipeline serve` as a process that tests kill, stop and look into."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import psutil

from local.leash import on_leash
from local.processes import log_tail
from tests.fixtures.ports import free_block

STOP_S = 60.0


class Serve:
    """`kafka-mesh pipeline serve` as its supervisor starts it."""

    def __init__(self, log: Path, **settings: str) -> None:
        """`settings`: as in its environment, without their prefix."""
        self._log = log
        self._metrics = f"127.0.0.1:{free_block(1)}"
        settings["METRICS_LISTEN"] = self._metrics
        environment = os.environ | {f"KAFKA_MESH_PIPELINE_{name}": value for name, value in settings.items()}
        command = [sys.executable, "-m", "local.cli", "pipeline", "serve"]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                on_leash(command), env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def must_run(self) -> None:
        assert self._process.poll() is None, f"serve ended by itself:\n{log_tail(self._log, 40)}"

    def kill(self) -> None:
        """With -9, itself alone; all that it has started has to end by itself."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        assert children, "it has no driver"
        self._process.kill()
        self._process.wait(STOP_S)
        _, alive = psutil.wait_procs(children, STOP_S)
        assert not alive, "its drivers go on without it"

    def stop(self) -> None:
        """In order, as a rollout does."""
        self._process.terminate()
        assert self._process.wait(STOP_S) == 0, log_tail(self._log, 40)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(STOP_S)

    @property
    def workers(self) -> list[psutil.Process]:
        """The Python processes in which Spark runs what is written in Python."""
        found = psutil.Process(self._process.pid).children(recursive=True)
        return [each for each in found if any("pyspark.daemon" in word for word in command_of(each))]

    def metric(self, name: str) -> float:
        """The sum of all its series."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=STOP_S) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"kafka_mesh_pipeline_{name}"))


def command_of(process: psutil.Process) -> list[str]:
    """Empty for one that is gone."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []

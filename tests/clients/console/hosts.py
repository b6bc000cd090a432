"""JVMs that run Kafka's tools one call after the other: to start a JVM for each call costs more than the call."""

from __future__ import annotations

import atexit
import base64
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.clients import builds
from tests.clients.contract import OPERATION_TIMEOUT_SECONDS, ClientError
from tests.clients.processes import Output
from tests.fixtures.toolchains import need

SOURCE = Path(__file__).parent / "host" / "ToolHost.java"
STOP_S = 60.0


def host_classes(class_path: str) -> Path:
    """The folder with the compiled host."""
    javac = need("javac")[0]
    return builds.built(
        "console-host", [SOURCE], lambda working: builds.run([javac, "-cp", class_path, "-d", working, SOURCE])
    )


class Hosts:
    """The JVMs of one command. Calls at the same time have a JVM each; a JVM that is free takes the next call."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._free: list[subprocess.Popen[str]] = []
        self._taking = threading.Lock()
        atexit.register(self._close)

    def call(self, tool: str, arguments: Sequence[str], stdin: str) -> Output:
        """The output of the tool. An exit code other than 0 becomes a ClientError that quotes it; a JVM whose tool has
        no end in time is killed.
        """
        with self._taking:
            host = self._free.pop() if self._free else None
        if host is None:
            host = self._start()
        late = threading.Event()

        def kill() -> None:
            late.set()
            host.kill()

        bound = threading.Timer(OPERATION_TIMEOUT_SECONDS, kill)
        bound.start()
        try:
            answer = _asked(host, (tool, stdin, *arguments))
        finally:
            bound.cancel()
        if not answer.endswith("\n"):
            host.kill()
            host.wait(STOP_S)
            end = f"no end after {OPERATION_TIMEOUT_SECONDS:.0f} s" if late.is_set() else "its JVM ended"
            raise ClientError(f"{end}: {tool} {' '.join(arguments)}")
        with self._taking:
            self._free.append(host)
        code, stdout, stderr = answer.rstrip("\n").split("\t")
        printed, complained = _decoded(stdout), _decoded(stderr)
        if code != "0":
            told = (complained or printed)[-2000:]
            raise ClientError(f"exit code {code}: {tool} {' '.join(arguments)}\n{told}")
        return Output(printed, complained)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def _close(self) -> None:
        for host in self._free:
            _pipe(host.stdin).close()
            host.wait(STOP_S)


def _asked(host: subprocess.Popen[str], given: Sequence[str]) -> str:
    """The line of the answer; a part of it, or nothing, if the JVM ended before."""
    line = "\t".join(base64.b64encode(each.encode()).decode() for each in given)
    try:
        _pipe(host.stdin).write(f"{line}\n")
        _pipe(host.stdin).flush()
    except BrokenPipeError:
        return ""
    return _pipe(host.stdout).readline()


def _pipe(end: IO[str] | None) -> IO[str]:
    assert end is not None, "the host was started with pipes"
    return end


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")

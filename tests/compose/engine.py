"""A container engine for the compose tests: the developer's own, or a private one that leaves nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
POLL_S = 0.1


class EngineError(RuntimeError):
    """No engine can be had; the message says why."""


def answers(environment: Mapping[str, str]) -> bool:
    """Whether the docker command finds a working engine."""
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(["docker", "info"], env=dict(environment), capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


@contextlib.contextmanager
def engine(data_root: Path) -> Iterator[dict[str, str]]:
    """The environment in which the docker command finds a working engine; EngineError when there is none.

    A private engine runs in its own mount and pid namespaces without touching the host's network set-up, and dies with
    this process. Its data folder is kept: that is the warm cache. exec-root and pid file must be new each time, because
    pids repeat in a pid namespace and a stale file would name a living process.
    """
    if answers(os.environ):
        yield dict(os.environ)
        return
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        raise EngineError("no container engine answers, and a private one needs root and the dockerd program")
    data_root.mkdir(parents=True, exist_ok=True)
    with (
        data_root.with_suffix(".lock").open("w") as lock,
        tempfile.TemporaryDirectory(prefix="mesh-engine-", ignore_cleanup_errors=True) as folder,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = Path(folder)
        environment = dict(os.environ, DOCKER_HOST=f"unix://{run}/docker.sock")
        log = run / "dockerd.log"
        with log.open("wb") as output:
            daemon = subprocess.Popen(_command(run, data_root), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not answers(environment):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise EngineError("dockerd did not start:\n" + log.read_text(errors="replace")[-3000:])
                time.sleep(POLL_S)
            yield environment
        finally:
            _stop(daemon)


def _command(run: Path, data_root: Path) -> list[str]:
    own_namespaces = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    places = ["--host", f"unix://{run}/docker.sock", "--data-root", str(data_root), "--exec-root", str(run / "exec")]
    no_host_network = ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none"]
    limits = ["--pidfile", str(run / "dockerd.pid"), "--shutdown-timeout", "10"]
    return [*own_namespaces, "dockerd", *places, *no_host_network, *limits]


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    if daemon.poll() is None:  # unshare ignores SIGTERM: signal dockerd, its child
        for pid in Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGTERM)
    try:
        daemon.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait(10)

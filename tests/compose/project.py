"""The compose project as its user runs it: `docker compose` on the files of the checkout, on ports of its own."""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PORT_VARIABLES = (
    "KAFKA_C1_PORT",
    "KAFKA_C2_PORT",
    "CONTROL_PORT",
    "GATEWAY_PORT",
    "GATEWAY_METRICS_PORT",
    "SIDECAR_PORT",
)
KAFKA_JVM = "-Xmx384m -Xms256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # starts soonest, leaves the cores to others
UP_TIMEOUT_S = 900.0
COMMAND_TIMEOUT_S = 120.0


class ComposeError(RuntimeError):
    """A compose command failed; the message ends with what it and the containers printed."""


@dataclass(frozen=True, slots=True)
class Project:
    """One running project. `ports` are host ports by the name of their variable."""

    environment: dict[str, str]
    ports: dict[str, int]

    @classmethod
    def on_free_ports(cls, environment: dict[str, str], name: str) -> Project:
        ports = dict(zip(PORT_VARIABLES, _free_ports(len(PORT_VARIABLES)), strict=True))
        files = "docker-compose.yml:tests/compose/compose.override.yaml"
        settings = {"COMPOSE_PROJECT_NAME": name, "COMPOSE_FILE": files, "KAFKA_HEAP": KAFKA_JVM}
        return cls({**environment, **settings, **{key: str(port) for key, port in ports.items()}}, ports)

    def up(self, *options: str) -> None:
        """`docker compose up --wait`: returns when every service is healthy."""
        self.run("up", "--detach", "--wait", "--wait-timeout", "300", *options, timeout=UP_TIMEOUT_S)

    def down(self, *options: str) -> None:
        self.run("down", "--timeout", "30", *options)

    def containers(self) -> dict[str, dict[str, Any]]:
        """What `docker inspect` says of each container, exited ones too, by service."""
        ids = self.run("ps", "--all", "--quiet").split()
        inspected = json.loads(self._docker("inspect", *ids)) if ids else []
        return {found["Config"]["Labels"]["com.docker.compose.service"]: found for found in inspected}

    def run(self, *arguments: str, timeout: float = COMMAND_TIMEOUT_S, stdin: str = "") -> str:
        """Standard output of `docker compose ARGUMENTS`."""
        return self._docker("compose", *arguments, timeout=timeout, stdin=stdin)

    def _docker(self, *arguments: str, timeout: float = COMMAND_TIMEOUT_S, stdin: str = "") -> str:
        done = subprocess.run(
            ["docker", *arguments],
            cwd=ROOT,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise ComposeError(
                f"docker {' '.join(arguments)}: exit {done.returncode}\n{done.stderr[-4000:]}{self._logs()}"
            )
        return done.stdout

    def _logs(self) -> str:
        logs = subprocess.run(
            ["docker", "compose", "logs", "--no-color", "--tail", "30"],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return "\n" + logs.stdout[-12000:]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]

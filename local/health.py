"""`kafka-mesh health`: is a service ready? For containers' health checks, so it imports nothing heavy."""

from __future__ import annotations

import os

from local.readiness import Condition, HttpReady, KafkaReady, TcpReady
from local.services import HOST, PORTS


def condition(target: str) -> Condition:
    """What `target` asks for: a URL (`http://`, `kafka://`, `tcp://`), or a service of this machine or container."""
    kind, separator, rest = target.partition("://")
    if kind == "http":
        return HttpReady(target)
    if separator and kind in ("kafka", "tcp"):
        return KafkaReady(rest) if kind == "kafka" else TcpReady(rest)
    if f"{target}-metrics" not in PORTS:
        services = ", ".join(name.removesuffix("-metrics") for name in PORTS if name.endswith("-metrics"))
        raise ValueError(f"{target!r} is neither a service ({services}) nor a URL (http://, kafka://, tcp://)")
    listens = os.environ.get(f"KAFKA_MESH_{target.upper()}_METRICS_LISTEN", f"{HOST}:{PORTS[f'{target}-metrics']}")
    host, _, port = listens.rpartition(":")
    anywhere = ("", "0.0.0.0", "[::]", "::")
    return HttpReady(f"http://{HOST if host in anywhere else host}:{port}/ready")

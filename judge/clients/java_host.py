"""The process in which Kafka's own clients run: orders and answers are lines of JSON (`jvm/Clients.java`)."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

MARGIN_S = 15.0
"""An order has its own bound; this is for a machine that is busy."""
END_S = 10.0


class JavaError(Exception):
    """An exception of a client: `name` is its class."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


@dataclass(slots=True)
class JavaHost:
    """One process for all clients of a run; each client has a thread of its own there."""

    command: Sequence[str]
    _process: subprocess.Popen[str] | None = None
    _waiting: dict[int, Future[dict[str, Any]]] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> JavaHost:
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        threading.Thread(target=self._hear, daemon=True).start()
        return self

    def ask(self, client: str, do: str, within_s: float, **what: Any) -> dict[str, Any]:
        """The answer; JavaError for an exception of the client, or when none came in time."""
        order = {"id": next(self._ids), "client": client, "do": do, "within_ms": int(within_s * 1000), **what}
        found: Future[dict[str, Any]] = Future()
        with self._lock:
            self._waiting[order["id"]] = found
            assert self._process is not None and self._process.stdin is not None, "started first"
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        try:
            answer = found.result(within_s + MARGIN_S)
        except TimeoutError:
            raise JavaError("NoAnswer", f"{do} was not answered within {within_s + MARGIN_S:g} s") from None
        finally:
            self._waiting.pop(order["id"], None)
        if "error" in answer:
            raise JavaError(answer["error"], answer["message"])
        return answer

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _hear(self) -> None:
        assert self._process is not None and self._process.stdout is not None, "started first"
        for line in self._process.stdout:
            answer = json.loads(line)
            if found := self._waiting.get(answer["id"]):
                found.set_result(answer)
        ended = {"error": "HostEnded", "message": "the process of Java's clients has ended"}
        for found in list(self._waiting.values()):
            if not found.done():
                found.set_result(ended)

"""The loggers of the backend beside this sidecar: an operator's call on loggers can be passed on to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import quote

import httpx

from services.sidecar.faults import Fault, FaultKind, invalid

MAX_ANSWER_BYTES = 1_000_000


class BackendFramework(Enum):
    """Whose way of asking for loggers the backend speaks."""

    LIGHT4J = "Light4j"
    SPRING_BOOT = "SpringBoot"


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """One logger. `ROOT` is the root logger."""

    name: str
    level: str


class BackendLoggers:
    """Asks the backend. Every call has a time-out; Fault when it fails."""

    def __init__(self, host: str, framework: BackendFramework, timeout_seconds: float) -> None:
        # the backend is beside this sidecar: no proxy leads there
        self._client = httpx.AsyncClient(base_url=host, timeout=timeout_seconds, trust_env=False)
        self._framework = framework

    async def get(self) -> list[LoggerLevel]:
        if self._framework is BackendFramework.LIGHT4J:
            return _loggers(await self._call("GET", "/adm/logger"))
        found = await self._call("GET", "/actuator/loggers")
        loggers = found.get("loggers") if isinstance(found, dict) else None
        if not isinstance(loggers, dict):
            raise _failed("the answer of /actuator/loggers has no member 'loggers'")
        return [
            LoggerLevel(name, str(one["configuredLevel"]))
            for name, one in sorted(loggers.items())
            if isinstance(one, dict) and one.get("configuredLevel")
        ]

    async def set(self, wanted: list[LoggerLevel]) -> list[LoggerLevel]:
        if self._framework is BackendFramework.LIGHT4J:
            body = [{"name": one.name, "level": one.level} for one in wanted]
            return _loggers(await self._call("POST", "/adm/logger", body))
        paths = [_spring_path(one.name) for one in wanted]  # all loggers are checked before the first is set
        for path, one in zip(paths, wanted, strict=True):
            await self._call("POST", path, {"configuredLevel": one.level})
        return wanted

    async def close(self) -> None:
        await self._client.aclose()

    async def _call(self, method: str, path: str, body: object = None) -> Any:
        try:
            async with self._client.stream(method, path, json=body) as answer:
                content = b""
                async for part in answer.aiter_bytes():
                    content += part
                    if len(content) > MAX_ANSWER_BYTES:
                        raise _failed(f"{path} answers more than {MAX_ANSWER_BYTES} bytes")
        except httpx.HTTPError as error:
            raise _failed(f"{path}: {str(error) or type(error).__name__}") from None
        if answer.status_code >= httpx.codes.BAD_REQUEST:
            raise _failed(f"{path} answers {answer.status_code}")
        if not content:
            return None
        try:
            return httpx.Response(answer.status_code, content=content).json()
        except ValueError:
            raise _failed(f"{path} answers no JSON") from None


def _spring_path(logger: str) -> str:
    """The path of a logger.

    The name is quoted, so no name leads to another part of the backend, such as its shutdown.
    """
    if not logger.strip("."):
        raise invalid("", f"{logger!r} is no name of a logger")
    return f"/actuator/loggers/{quote(logger, safe='')}"


def _loggers(found: object) -> list[LoggerLevel]:
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("level"), str)
        for one in found
    ):
        raise _failed("the answer of /adm/logger is no list of loggers")
    return [LoggerLevel(one["name"], one["level"]) for one in found]


def _failed(reason: str) -> Fault:
    return Fault(FaultKind.DOWNSTREAM_ADMIN_FAILED, f"The backend beside this sidecar did not answer: {reason}")

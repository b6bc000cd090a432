"""Client libraries of other languages, each behind a small program that takes orders line by line.

Theory of operation. A line on a program's stdin is an order: a name, and settings as `name=value` with commas in lists.

    produce acks=all compression=gzip idempotent=true records=2     and then a line for each record
    produce acks=all compression=none idempotent=true topics=a,b ids=PREFIX rate=200 keys=32      until `stop`
    consume topics=a,b group=G isolation=read_committed count=5      or pattern=REGEX; without a count until `stop`
    copy id=ID group=G source=S topics=a,b count=5 commits=true      one transaction, with the group's offsets
    create-topic topic=T partitions=3     delete-topic topic=T     topics     partitions topic=T
    topic-config topic=T     brokers     groups     committed group=G topics=a,b

The program prints JSON objects, a line each: `{"acked": ID, ...}` and `{"received": VALUE, ...}` for records,
`{"error": TEXT, "at": PLACE}` for what went wrong on the way, and at the end of each order exactly one
`{"done": ANSWER}` or `{"failed": TEXT}`. `stop` ends the order under way, in good order; the end of stdin ends the
program after that.

Each order to produce or consume is a client of its own. The program around them stays for the whole session, so that a
JVM starts once and not for each step of each test; a program that does not answer in time is killed, and the next order
starts a new one. It is a plain process with threads, because it outlives the event loops of the tests.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from tests.clients.contract import (
    EVERYTHING,
    OPERATION_TIMEOUT_SECONDS,
    Can,
    ClientError,
    Compression,
    Copying,
    Delivery,
    Message,
    Reading,
    Received,
    Sending,
)

STDERR_LINES_KEPT = 60
Line = dict[str, Any]


class Program:
    """A program under orders; one order at a time."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES_KEPT)

    async def obey(self, order: str, records: Sequence[str] = ()) -> tuple[Any, list[Line]]:
        """The answer, and what was told on the way; an error on the way is an error of the order."""
        return await asyncio.to_thread(self._obey, order, records)

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(OPERATION_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._kill()
            self._process = None

    def _obey(self, order: str, records: Sequence[str]) -> tuple[Any, list[Line]]:
        process = self._running()
        assert process.stdin is not None
        process.stdin.write("".join(f"{line}\n" for line in (order, *records)))
        process.stdin.flush()
        told: list[Line] = []
        deadline = time.monotonic() + OPERATION_TIMEOUT_SECONDS
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._kill()
                raise self._error(order, f"no end after {OPERATION_TIMEOUT_SECONDS:.0f} s", told) from None
            if line is None:
                self._kill()
                raise self._error(order, "the program ended", told)
            if "failed" in line:
                raise self._error(order, line["failed"], told)
            if "done" in line:
                if any("error" in each for each in told):
                    raise self._error(order, "errors on the way", told)
                return line["done"], told
            told.append(line)

    def _error(self, order: str, what: str, told: Sequence[Line]) -> ClientError:
        others = [line for line in told if "received" not in line and "acked" not in line]
        return ClientError(f"{self.name}, {order!r}: {what}; {len(told)} lines, {others}\n" + "\n".join(self._stderr))

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
            # A killed program's last words must not meet the next one's.
            self._lines, self._stderr = queue.SimpleQueue(), deque(maxlen=STDERR_LINES_KEPT)
            for reading, source, sink in (
                (_read_json, self._process.stdout, self._lines.put),
                (_read_text, self._process.stderr, self._stderr.append),
            ):
                threading.Thread(target=reading, args=(source, sink), name=self.name, daemon=True).start()
        return self._process

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _read_json(stdout: IO[str], sink: Callable[[Line | None], None]) -> None:
    for line in stdout:
        sink(json.loads(line))
    sink(None)


def _read_text(stderr: IO[str], sink: Callable[[str], None]) -> None:
    for line in stderr:
        sink(line.rstrip())


_programs: dict[tuple[str, ...], Program] = {}


def program(name: str, command: Sequence[str]) -> Program:
    """The one program of this command."""
    kept = _programs.get(tuple(command))
    if kept is None:
        kept = _programs[tuple(command)] = Program(name, command)
        atexit.register(kept.close)
    return kept


class SteeredClient:
    """Producer and consumer of a steered program."""

    def __init__(
        self, name: str, command: Sequence[str], can: frozenset[Can], compressions: frozenset[Compression]
    ) -> None:
        self.name = name
        self.can = can
        self.compressions = compressions
        self.command = command
        self._program = program(name, command)

    async def produce(self, messages: Sequence[Message], sending: Sending) -> list[Delivery]:
        order = f"produce {settings(sending)} records={len(messages)}"
        _, told = await self._program.obey(order, [record_line(message) for message in messages])
        return [
            Delivery(
                messages[int(line["acked"])].value,
                line["topic"],
                line["partition"],
                line["offset"] if Can.TELL_OFFSETS in self.can and sending.acknowledged else None,
            )
            for line in told
            if "acked" in line
        ]

    async def consume(self, reading: Reading) -> list[Received]:
        what = f"pattern={reading.pattern}" if reading.pattern else f"topics={','.join(reading.topics)}"
        order = f"consume {what} group={reading.group} isolation={reading.isolation} count={reading.count}"
        _, told = await self._program.obey(order)
        return [received(line) for line in told if "received" in line]

    async def copy(self, copying: Copying) -> None:
        what = f"source={copying.source} topics={','.join(copying.targets)} count={copying.count}"
        commits = str(copying.commits).lower()
        await self._program.obey(f"copy id={copying.transactional_id} group={copying.group} {what} commits={commits}")


class SteeredAdmin:
    """The admin client of a steered program."""

    def __init__(self, name: str, command: Sequence[str], can: frozenset[Can] = EVERYTHING) -> None:
        self.name = name
        self.can = can
        self._program = program(name, command)

    async def create_topic(self, topic: str, partitions: int) -> None:
        await self._program.obey(f"create-topic topic={topic} partitions={partitions}")

    async def delete_topic(self, topic: str) -> None:
        await self._program.obey(f"delete-topic topic={topic}")

    async def topics(self) -> set[str]:
        return set(await self._ask("topics"))

    async def partitions(self, topic: str) -> int:
        return int(await self._ask(f"partitions topic={topic}"))

    async def topic_config(self, topic: str) -> Mapping[str, str]:
        config: dict[str, str] = await self._ask(f"topic-config topic={topic}")
        return config

    async def brokers(self) -> set[str]:
        return set(await self._ask("brokers"))

    async def groups(self) -> set[str]:
        return set(await self._ask("groups"))

    async def committed(self, group: str, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        offsets: dict[str, int] = await self._ask(f"committed group={group} topics={','.join(topics)}")
        found = {}
        for place, offset in offsets.items():
            topic, _, partition = place.rpartition("-")
            if topic in topics:
                found[topic, int(partition)] = offset
        return found

    async def close(self) -> None:
        """The program stays for the next test."""

    async def _ask(self, order: str) -> Any:
        answer, _ = await self._program.obey(order)
        return answer


def settings(sending: Sending) -> str:
    """How to produce, in an order's words."""
    idempotent = str(sending.idempotent).lower()
    return f"acks={sending.acks} compression={sending.compression} idempotent={idempotent}"


def record_line(message: Message) -> str:
    """A record below its order: topic, key, value, timestamp and headers with tabs between, texts in base64."""
    headers = ",".join(f"{_base64(name)}.{_base64(value)}" for name, value in message.headers) or "-"
    timestamp = "-" if message.timestamp_ms is None else str(message.timestamp_ms)
    key = "-" if message.key is None else _base64(message.key)
    return "\t".join((message.topic, key, _base64(message.value), timestamp, headers))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def received(line: Mapping[str, Any]) -> Received:
    return Received(
        topic=line["topic"],
        partition=line["partition"],
        offset=line["offset"],
        value=line["received"],
        key=line["key"],
        headers=tuple(sorted(line["headers"].items())),
        timestamp_ms=line["timestamp"],
    )

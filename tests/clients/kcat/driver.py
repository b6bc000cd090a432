"""kcat, on whatever librdkafka its package was built with: one process for each topic written, one for each reading."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from tests.clients.contract import (
    ALL_COMPRESSIONS,
    EVERYTHING,
    Can,
    ClientError,
    Delivery,
    Message,
    Reading,
    Received,
    Sending,
)
from tests.clients.entrances import of_librdkafka
from tests.clients.processes import run
from tests.fixtures.toolchains import need


class KcatClient:
    """kcat gives all records of a process the same headers, and cannot set timestamps or tell offsets."""

    name = "kcat"
    can = EVERYTHING - {Can.SET_TIMESTAMPS, Can.TELL_OFFSETS, Can.TRANSACT}
    compressions = ALL_COMPRESSIONS

    def __init__(self, bootstrap: str) -> None:
        options = [f"{name}={value}" for name, value in of_librdkafka(bootstrap).items()]
        self._kcat = [str(need("kcat")[0]), *(part for each in options for part in ("-X", each))]

    async def produce(self, messages: Sequence[Message], sending: Sending) -> list[Delivery]:
        def of_one_process(message: Message) -> tuple[str, tuple[tuple[str, str], ...]]:
            return message.topic, message.headers

        for (topic, headers), batch in groupby(sorted(messages, key=of_one_process), of_one_process):
            options = ["-P", "-t", topic, "-K", "\t", "-z", str(sending.compression), "-X", f"acks={sending.acks}"]
            options += ["-X", f"enable.idempotence={str(sending.idempotent).lower()}"]
            options += [part for name, value in headers for part in ("-H", f"{name}={value}")]
            await run([*self._kcat, *options], "".join(f"{message.key}\t{message.value}\n" for message in batch))
        return [Delivery(message.value, message.topic) for message in messages]

    async def consume(self, reading: Reading) -> list[Received]:
        options = ["-q", "-J", "-c", str(reading.count), "-X", "auto.offset.reset=earliest"]
        options += ["-X", f"isolation.level={reading.isolation}", "-G", reading.group, *reading.topics]
        printed = (await run([*self._kcat, *options])).stdout.splitlines()
        if len(printed) != reading.count:
            raise ClientError(f"{self.name}: {len(printed)} of {reading.count} records")
        return [_received(json.loads(line)) for line in printed]


def _received(line: dict[str, Any]) -> Received:
    flat = line.get("headers", [])
    return Received(
        topic=line["topic"],
        partition=line["partition"],
        offset=line["offset"],
        value=line["payload"],
        key=line["key"],
        headers=tuple(sorted(zip(flat[::2], flat[1::2], strict=True))),
        timestamp_ms=line["ts"],
    )

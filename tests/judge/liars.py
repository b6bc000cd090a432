"""Cables that lie: what a faulty gateway or broker would do to requests and answers, to be found by the judge.

A liar reads whole frames. It lies now and then, by a seed, and says how often it did.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from judge.faults.cable import Cable
from judge.protocol.apis import (
    ADD_PARTITIONS,
    END_TXN,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    Api,
)
from judge.protocol.batches import Batch, decode, encode
from judge.protocol.schema import Message, Reader


class Lie(StrEnum):
    DROP = "an acknowledged produce is not stored"
    REPEAT = "a produce is stored twice"
    WRONG_OFFSET = "a produce is acknowledged at an offset of another"
    SWAP = "records of a produce are stored in another order"
    GAP = "a fetch leaves records out"
    BACK = "a fetch brings records again"
    ALTER = "a fetch changes a byte of a record"
    STORED_AFTER_ALL = "a produce is refused for good and stored"
    TEAR = "of a transaction's writes one is lost"
    COMMIT_ABORTED = "an abort becomes a commit"
    FORGET_END = "a transaction's commit is acknowledged and not carried out"
    FORGET_COMMIT = "an acknowledged commit is not stored"


OFTEN = {Lie.GAP: 0.6, Lie.BACK: 0.6, Lie.TEAR: 0.5, Lie.FORGET_COMMIT: 1.0, Lie.FORGET_END: 0.7}
"""What has to meet something else to be seen is tried more often."""
Ask: TypeAlias = Callable[[Message], Message]
"""Asks the broker really."""
APIS: dict[int, Api] = {
    api.key: api
    for api in (
        ADD_PARTITIONS,
        END_TXN,
        FETCH,
        INIT_PRODUCER_ID,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        PRODUCE,
    )
}


@dataclass(slots=True)
class Liar(Cable):
    lie: Lie = Lie.DROP
    lies: list[str] = field(default_factory=list)
    """What it did, in words."""
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    _ends: dict[tuple[str, int], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _shown: dict[tuple[str, int], bytes] = field(default_factory=dict)

    def carry(self, near: socket.socket, far: socket.socket) -> None:
        try:
            while frame := _frame(near):
                near.sendall(self._answered(frame, far))
        except (OSError, struct.error):
            pass
        self.end(near, far)

    def _answered(self, frame: bytes, far: socket.socket) -> bytes:
        key, _, correlation = struct.unpack_from(">hhi", frame, 4)
        api = APIS.get(key)
        if api is None:
            return _passed(frame, far)
        [name] = struct.unpack_from(">h", frame, 12)
        reader = Reader(frame, 14 + name + 1)
        message = api.request.read(reader)

        def ask(changed: Message) -> Message:
            return api.answer(correlation, _passed(api.frame(correlation, "liar", changed), far)[4:])

        with self._lock:
            answer = self._lied(api, message, ask) if self.chance.random() < OFTEN.get(self.lie, 0.2) else None
        if answer is None:
            answer = ask(message)
        self._remember(api, answer)
        body = struct.pack(">i", correlation) + b"\0" + api.response.write(answer)
        return struct.pack(">i", len(body)) + body

    def _lied(self, api: Api, message: Message, ask: Ask) -> Message | None:
        """None: nothing to lie about here."""
        if api is PRODUCE:
            return self._lied_about_produce(message, ask)
        if api is FETCH:
            return self._lied_about_fetch(ask(message))
        if api is END_TXN and self.lie is Lie.COMMIT_ABORTED and not message["commit"]:
            return self._did("an abort became a commit", ask({**message, "commit": True}))
        if api is END_TXN and self.lie is Lie.FORGET_END and message["commit"]:
            return self._did("a commit was not carried out", {"error": 0})
        if api is OFFSET_COMMIT and self.lie is Lie.FORGET_COMMIT:
            topics = [
                {"name": t["name"], "partitions": [{"partition": p["partition"], "error": 0} for p in t["partitions"]]}
                for t in message["topics"]
            ]
            return self._did("a commit was not stored", {"topics": topics})
        return None

    def _lied_about_produce(self, message: Message, ask: Ask) -> Message | None:
        [topic] = message["topics"]
        [partition] = topic["partitions"]
        where = (topic["name"], partition["partition"])
        [batch] = decode(partition["records"])
        values = [value for _, value in batch.records]
        transactional = batch.transactional
        match self.lie:
            case Lie.DROP | Lie.TEAR if where in self._ends and transactional == (self.lie is Lie.TEAR):
                offset = self._ends[where]
                return self._did(f"{where}: not stored", _produced(where, 0, offset))
            case Lie.REPEAT if not transactional:
                answer = ask(message)
                ask(_with_records(message, encode(values, now_ms=0)))
                return self._did(f"{where}: stored twice", answer)
            case Lie.WRONG_OFFSET if not transactional:
                answer = ask(message)
                base = answer["topics"][0]["partitions"][0]["base_offset"]
                return self._did(f"{where}: another offset", _produced(where, 0, base - 1)) if base > 0 else answer
            case Lie.SWAP if len(values) > 1 and not transactional:
                swapped = _encoded_again(values[::-1], batch)
                return self._did(f"{where}: another order", ask(_with_records(message, swapped)))
            case Lie.STORED_AFTER_ALL if not transactional:
                ask(message)
                return self._did(f"{where}: refused and stored", _produced(where, 10, -1))
        return None

    def _lied_about_fetch(self, answer: Message) -> Message:
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                where, records = (topic["name"], partition["partition"]), partition["records"] or b""
                batches = list(_batches(records))
                if self.lie is Lie.GAP and len(batches) > 2:
                    partition["records"] = batches[0] + b"".join(batches[2:])
                    self._did(f"{where}: a batch left out", answer)
                elif self.lie is Lie.BACK and batches and where in self._shown:
                    partition["records"] = self._shown[where] + records
                    self._did(f"{where}: a batch again", answer)
                elif self.lie is Lie.ALTER and batches:
                    partition["records"] = _altered(batches[0]) + b"".join(batches[1:])
                    self._did(f"{where}: a byte changed", answer)
        return answer

    def _did(self, what: str, answer: Message) -> Message:
        self.lies.append(what)
        return answer

    def _remember(self, api: Api, answer: Message) -> None:
        if api is PRODUCE:
            for topic in answer["topics"]:
                for partition in topic["partitions"]:
                    if not partition["error"]:
                        self._ends[topic["name"], partition["partition"]] = partition["base_offset"]
        if api is FETCH:
            for topic in answer["topics"]:
                for partition in topic["partitions"]:
                    for batch in list(_batches(partition["records"] or b""))[:1]:
                        self._shown[topic["name"], partition["partition"]] = batch


def _with_records(message: Message, records: bytes) -> Message:
    [topic] = message["topics"]
    [partition] = topic["partitions"]
    return {
        **message,
        "transactional_id": None,
        "topics": [{**topic, "partitions": [{**partition, "records": records}]}],
    }


def _produced(where: tuple[str, int], error: int, offset: int) -> Message:
    partition = {"partition": where[1], "error": error, "base_offset": offset, "append_ms": -1, "log_start": 0}
    return {"topics": [{"name": where[0], "partitions": [partition]}]}


def _batches(records: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(records):
        [length] = struct.unpack_from(">i", records, at + 8)
        if at + 12 + length > len(records):
            return
        yield records[at : at + 12 + length]
        at += 12 + length


def _altered(batch: bytes) -> bytes:
    """With a digit of its last value changed, and the checksum of the batch as it has to be."""
    [parsed] = decode(batch)
    if parsed.control:
        return batch
    values = [value for _, value in parsed.records]
    values[-1] = values[-1][:-1] + (b"0" if values[-1][-1:] != b"0" else b"1")
    return struct.pack(">q", parsed.base_offset) + _encoded_again(values, parsed)[8:]


def _encoded_again(values: list[bytes], like: Batch) -> bytes:
    return encode(
        values,
        now_ms=0,
        producer_id=like.producer_id,
        epoch=like.epoch,
        sequence=like.sequence,
        transactional=like.transactional,
    )


def _passed(frame: bytes, far: socket.socket) -> bytes:
    far.sendall(frame)
    return _frame(far)


def _frame(source: socket.socket) -> bytes:
    """With its size; empty at the end."""
    head = _taken(source, 4)
    return head + _taken(source, struct.unpack(">i", head)[0]) if len(head) == 4 else b""


def _taken(source: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (data := source.recv(size - len(found))):
        found += data
    return found

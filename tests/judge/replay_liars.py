"""A cable that lies about single answers: what the replayer has to find."""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from judge.faults.cable import PIECE, Cable
from judge.protocol.schema import Message
from judge.replay.codec import encode
from judge.replay.frames import Request, answer_of, request_of
from judge.replay.record_batches import has_head, split
from judge.replay.specification import Specifications
from judge.systems.client_jars import client_jars

LOOK_S = 0.02
"""Only reading is bounded: a peer that stands still takes its bytes later."""


class Lie(StrEnum):
    NONE = "it tells the truth"
    ERROR = "an error code changes"
    OFFSET = "an offset changes"
    PARTITION = "a partition is dropped"
    ORDER = "two answers change places"
    RECORD = "a byte of a record changes"
    SILENCE = "the connection ends in the place of an answer"


@dataclass(slots=True)
class AnswerLiar(Cable):
    """Lies once."""

    lie: Lie = Lie.NONE
    specs: Specifications = field(default_factory=lambda: Specifications(client_jars()))
    lied: bool = False

    def carry(self, near: socket.socket, far: socket.socket) -> None:
        asked: deque[Request] = deque()
        from_client, from_broker, held = bytearray(), bytearray(), b""
        try:
            while True:
                for frame in _frames(near, from_client):
                    request = request_of(self.specs, frame)
                    if not (request.api == "Produce" and request.message and request.message["Acks"] == 0):
                        asked.append(request)
                    far.sendall(_sized(frame))
                for frame in _frames(far, from_broker):
                    answer = self._told(asked.popleft(), frame)
                    if self.lie is Lie.ORDER and not self.lied and asked:
                        held, self.lied = answer, True
                        continue
                    near.sendall(_sized(answer) + (_sized(held) if held else b""))
                    held = b""
        except OSError:
            pass
        self.end(near, far)

    def _told(self, request: Request, frame: bytes) -> bytes:
        if self.lied or self.lie in (Lie.NONE, Lie.ORDER):
            return frame
        answer = answer_of(self.specs, request, frame)
        spec = self.specs.find(request.key, request.version, is_request=False)
        if answer.message is None or spec is None or not self._has_lied(request.api, answer.message):
            return frame
        self.lied = True
        if self.lie is Lie.SILENCE:
            raise ConnectionError(self.lie)
        return frame[: len(frame) - len(answer.body)] + encode(spec, request.version, answer.message)

    def _has_lied(self, api: str, message: Message) -> bool:
        if self.lie is Lie.ERROR and api == "OffsetCommit":
            message["Topics"][0]["Partitions"][0]["ErrorCode"] = 25
        elif self.lie is Lie.OFFSET and api == "Produce":
            message["Responses"][0]["PartitionResponses"][0]["BaseOffset"] += 1
        elif self.lie is Lie.PARTITION and api == "Metadata" and message["Topics"]:
            message["Topics"][0]["Partitions"] = message["Topics"][0]["Partitions"][1:]
        elif self.lie is Lie.RECORD and api == "Fetch":
            return any(_spoiled(p) for topic in message["Responses"] for p in topic["Partitions"])
        else:
            return self.lie is Lie.SILENCE and api == "ListOffsets"
        return True


def _spoiled(partition: Message) -> bool:
    """Whether there was a whole batch, of which another byte stands at the end now."""
    records = partition["Records"]
    batch = next(split(records or b""), b"")
    if not has_head(batch):
        return False
    last = len(batch) - 1
    partition["Records"] = records[:last] + bytes([records[last] ^ 1]) + records[last + 1 :]
    return True


def _frames(source: socket.socket, kept: bytearray) -> Iterator[bytes]:
    """What has come whole by now."""
    if select.select([source], [], [], LOOK_S)[0]:
        data = source.recv(PIECE)
        if not data:
            raise ConnectionError("ended")
        kept += data
    while len(kept) >= 4 and len(kept) >= 4 + (size := struct.unpack_from(">i", kept)[0]):
        frame = bytes(kept[4 : 4 + size])
        del kept[: 4 + size]
        yield frame


def _sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame

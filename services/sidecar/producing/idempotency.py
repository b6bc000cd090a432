"""First answers, kept for requests that come again under their Idempotency-Key.

An answer is kept for a bounded time, in bounded number and size; the oldest answers go first. These answers are a copy
of a topic: each answer is written there in the same Kafka transaction as its records (`transaction_log.py`).
"""

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Self

import orjson

from services.sidecar.telemetry import metrics


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key of a request, and a digest that identifies the request."""

    key: str
    digest: str

    @classmethod
    def of(cls, key: str, *parts: bytes) -> Self:
        """`parts` is the content that identifies the request: another content means another request."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(len(part).to_bytes(8))
            digest.update(part)
        return cls(key, digest.hexdigest())


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The answer to the first request under a key."""

    digest: str
    answer: bytes
    """The body of the answer, in JSON."""
    at_ms: int

    def encoded(self) -> bytes:
        """The answer as a value of the topic."""
        return orjson.dumps({"digest": self.digest, "at": self.at_ms, "answer": orjson.Fragment(self.answer)})

    @classmethod
    def decoded(cls, text: bytes) -> Self:
        """The answer in a value of the topic. ValueError when the value is something else."""
        found = orjson.loads(text)
        try:
            return cls(str(found["digest"]), orjson.dumps(found["answer"]), int(found["at"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no kept answer: {error!r}") from None


class KeptAnswers:
    """Answers by key, the oldest first. Threads that read topics of answers share this object with the event loop."""

    def __init__(self, *, keep_ms: int, max_keys: int, max_bytes: int) -> None:
        self._keep_ms = keep_ms
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, KeptAnswer] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, key: str, now_ms: int) -> KeptAnswer | None:
        with self._lock:
            self._forget(now_ms)
            return self._kept.get(key)

    def keep(self, key: str, answer: KeptAnswer, now_ms: int) -> None:
        with self._lock:
            self._remove(key)
            self._kept[key] = answer
            self._bytes += _size(key, answer)
            self._forget(now_ms)

    def __len__(self) -> int:
        return len(self._kept)

    def _forget(self, now_ms: int) -> None:
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            outdated = oldest.at_ms + self._keep_ms <= now_ms
            if not outdated and len(self._kept) <= self._max_keys and self._bytes <= self._max_bytes:
                break
            self._remove(key)
        metrics.kept_answers.set(len(self._kept))

    def _remove(self, key: str) -> None:
        answer = self._kept.pop(key, None)
        if answer is not None:
            self._bytes -= _size(key, answer)


def _size(key: str, answer: KeptAnswer) -> int:
    return len(key) + len(answer.answer)

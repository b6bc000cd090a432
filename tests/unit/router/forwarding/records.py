"""Records for tests of what judges them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from mesh.judging.records import Headers


@dataclass(frozen=True, slots=True)
class Sample:
    """A source record, as `confluent_kafka.Message` shows it; its value is never read when it is not asked for."""

    key_: bytes | None = b"k"
    value_: bytes | None = b"{}"
    headers_: Headers | None = None
    time: int = 1_700_000_000_000
    topic_: str = "orders"
    partition_: int = 3
    offset_: int = 42

    def topic(self) -> str:
        return self.topic_

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def headers(self) -> Headers | None:
        return self.headers_

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time


def sample(value: Any = None, *, key: str | None = "k", raw: bytes | None = None, **headers: str) -> Sample:
    """`sample({"a": 1}, kind="order")`: a JSON value and headers; `raw` in place of the JSON, no value: a tombstone."""
    content = raw if raw is not None or value is None else json.dumps(value).encode()
    named: Headers = [(name, text.encode()) for name, text in headers.items()]
    return Sample(None if key is None else key.encode(), content, named or None)

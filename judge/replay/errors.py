"""Errors that pass by themselves: an endpoint that has just started, or just made a topic, answers them for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

UNSETTLED = frozenset({5, 6, 14, 15, 16, 41, 51})
"""No leader yet, not the leader, the coordinator loads or is not there, not the controller, a transaction is ending."""
UNKNOWN_FOR_NOW = frozenset({3, 75, 100})
"""A topic, by name or id, or an epoch that not every broker knows yet. An answer also where there is none."""
NAMES = ("ErrorCode", "PartitionErrorCode", "AcknowledgeErrorCode")


def error_codes(message: Mapping[str, Any]) -> list[int]:
    """The error codes of the whole answer and of all its parts, without zeros."""
    return [code for code in _codes(message) if code]


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            if name in NAMES:
                yield part
            else:
                yield from _codes(part)
    elif isinstance(value, list):
        for part in value:
            yield from _codes(part)

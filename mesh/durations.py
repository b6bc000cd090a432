"""Lengths of time in messages: google.protobuf.Duration from numbers with a unit, and back."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

_NANOS_PER_S = 1_000_000_000
_NANOS_PER_MS = 1_000_000


def of_ms(milliseconds: float) -> Duration:
    seconds, nanos = divmod(round(milliseconds * _NANOS_PER_MS), _NANOS_PER_S)
    return _made(seconds, nanos)


def of_s(seconds: float) -> Duration:
    whole, nanos = divmod(round(seconds * _NANOS_PER_S), _NANOS_PER_S)
    return _made(whole, nanos)


def in_ms(of: Duration) -> float:
    """0 if the message has no such length. A message of somebody else may have any numbers, so none is refused here."""
    return of.seconds * 1000 + of.nanos / _NANOS_PER_MS


def whole_ms(of: Duration) -> int:
    return round(in_ms(of))


def in_s(of: Duration) -> float:
    return of.seconds + of.nanos / _NANOS_PER_S


def whole_s(of: Duration) -> int:
    return round(in_s(of))


def _made(seconds: int, nanos: int) -> Duration:
    if seconds < 0 and nanos:  # both parts of a negative length are negative
        seconds, nanos = seconds + 1, nanos - _NANOS_PER_S
    return Duration(seconds=seconds, nanos=nanos)

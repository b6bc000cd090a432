"""Streams of control that are followed across broken connections, until the user stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import click
import grpc

from meshctl.failures import as_call

RECONNECT_SECONDS = 1.0  # control restarts in seconds; asking more often finds nothing out
_ENDS = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
"""A stream has a deadline, and control may be started anew: both end the stream alone."""
T = TypeVar("T")


def reopened(opened: Callable[[], Iterable[T]], *, is_there: bool = False, again: bool = True) -> Iterator[T]:
    """All that a stream gives; it is opened again when it breaks off, and, with `again`, when it ends.

    `opened` begins where the one before ended. A control that was never there is an error; with `is_there` it has been.
    """
    away = False
    while True:
        try:
            for each in opened():
                is_there, away = True, False
                yield each
            if not again:
                return
        except grpc.RpcError as error:
            code = as_call(error).code()
            if code not in _ENDS or not is_there:
                raise
            if code is grpc.StatusCode.UNAVAILABLE and not away:
                click.echo("control went away; waiting for it", err=True)
                away = True
        time.sleep(RECONNECT_SECONDS)

"""Questions to control with the identity of the person who started `meshctl mcp`.

Each tool call opens a connection of its own: a connection is not for several threads, and a token that `meshctl login`
has renewed counts from the next call on. All calls go to the address that the server was started for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc

from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError, as_call, from_rpc, is_from_control
from meshctl.session import Session

MOST_AT_ONCE = 4
"""Tool calls that ask control at the same time; others wait for their turn."""
SILENT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
)
"""Codes that gRPC itself may give where control has said nothing."""
UNKNOWN = "UNKNOWN_OUTCOME"

T = TypeVar("T")


class Asking:
    """Opens connections, one for each tool call."""

    def __init__(self, session: Session) -> None:
        """MeshctlError if the options, the environment or the context can't be used."""
        self._session = session
        self._turns = threading.BoundedSemaphore(MOST_AT_ONCE)
        first = session.opened()
        first.close()
        self.address = first.endpoint.address

    def ask(self, question: Callable[[Connection], T]) -> T:
        """The answer. MeshctlError, in control's own words."""
        with self._connected() as connection:
            try:
                return question(connection)
            except grpc.RpcError as error:
                raise from_rpc(error, connection.endpoint, options={}) from error

    def change(self, order: Callable[[Connection], T]) -> T:
        """As `ask`, for a call that changes something: where control is silent, the outcome is unknown."""
        with self._connected() as connection:
            try:
                return order(connection)
            except grpc.RpcError as error:
                failure = from_rpc(error, connection.endpoint, options={})
                code = as_call(error).code()
                is_unknown = code is grpc.StatusCode.DEADLINE_EXCEEDED or not is_from_control(error)
                if is_unknown and code in SILENT:
                    failure.status = UNKNOWN
                    failure.message = (
                        "the outcome is unknown, the change may have been made or may still be made: "
                        f"{failure.message}; ask `history` before anything else"
                    )
                raise failure from error

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        if not self._turns.acquire(timeout=self._session.timeout):
            text = f"{MOST_AT_ONCE} questions still wait for control; ask again later"
            raise MeshctlError(text, ExitCode.UNAVAILABLE)
        try:
            connection = self._session.opened()
            try:
                self._check(connection)
                yield connection
            finally:
                connection.close()
        finally:
            self._turns.release()

    def _check(self, connection: Connection) -> None:
        now = connection.endpoint.address
        if now != self.address:
            raise MeshctlError(
                f"meshctl mcp was started for control at {self.address}, and the address is {now} now; start it again",
                ExitCode.BAD_REQUEST,
            )

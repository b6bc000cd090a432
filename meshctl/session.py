"""Shared by all commands: the options of the connection, --timeout and -o, and the connection made from them.

The options stand on the group and on each command: `meshctl -o json status` and `meshctl status -o json` both work.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import grpc

from mesh.rpc.tls import RpcTls, RpcTlsError
from meshctl.connection import Connection
from meshctl.endpoints import Endpoint, EndpointsError, Service, find, split_address
from meshctl.failures import ExitCode, MeshctlError, from_rpc

ADDRESS_VARIABLE = "MESHCTL_ADDRESS"
TLS_VARIABLE = "MESHCTL_TLS_FOLDER"
ADMIN = "admin"
"""The folder with the certificate of the person who started the mesh on this machine."""
DEFAULT_TIMEOUT_SECONDS = 30.0  # a rule change may wait for another one and for the gateways' holds


class OutputFormat(StrEnum):
    """How results are shown."""

    TABLE = "table"
    JSON = "json"


@dataclass(slots=True)
class Session:
    """The options of one command line, and its connection once it is needed."""

    address: str | None = None
    tls_folder: str | None = None
    on_behalf_of: str = ""
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    output: OutputFormat = OutputFormat.TABLE
    _connection: Connection | None = None

    @property
    def as_json(self) -> bool:
        return self.output is OutputFormat.JSON

    def connect(self) -> Connection:
        """The connection; made at first use, closed with the command."""
        if self._connection is None:
            try:
                endpoint = find(Service.CONTROL, option=self.address, variable=ADDRESS_VARIABLE)
                split_address(endpoint.address)
            except EndpointsError as error:
                raise MeshctlError(str(error), ExitCode.BAD_REQUEST) from error
            try:
                tls = tls_files(endpoint, self.tls_folder)
                self._connection = Connection(endpoint, self.timeout, tls, self.on_behalf_of)
            except RpcTlsError as error:
                raise MeshctlError(str(error), ExitCode.BAD_REQUEST) from error
            click.get_current_context().call_on_close(self.close)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def failure(self, error: grpc.RpcError) -> MeshctlError:
        """The failure of a call on this session's connection."""
        return from_rpc(error, self.connect().endpoint)


def tls_files(endpoint: Endpoint, folder: str | None = None) -> RpcTls | None:
    """The certificate of this person or program: from an option, the environment, or the mesh on this machine if the
    address is from there; None: gRPC in plaintext.
    """
    if named := folder or os.environ.get(TLS_VARIABLE):
        return RpcTls(Path(named))
    return RpcTls(endpoint.certificates / ADMIN) if endpoint.certificates else None


pass_session = click.make_pass_decorator(Session, ensure=True)


def _store(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def store(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        session = context.ensure_object(Session)
        if value is not None:
            setattr(session, field, value)

    return store


def _shared_options() -> list[click.Parameter]:
    formats = click.Choice([each.value for each in OutputFormat])

    def store_format(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        session = context.ensure_object(Session)
        if value is not None:
            session.output = OutputFormat(value)

    return [
        click.Option(
            ["--address"], metavar="HOST:PORT", expose_value=False, callback=_store("address"),
            help=f"Address of control. Default: ${ADDRESS_VARIABLE}, .kafka-mesh/endpoints.json, 127.0.0.1:7070.",
        ),
        click.Option(
            ["--tls-folder"], metavar="FOLDER", expose_value=False, callback=_store("tls_folder"),
            help=f"ca.crt, tls.crt and tls.key for a control that asks for certificates. "
            f"Default: ${TLS_VARIABLE}, or those of `kafka-mesh up` with its address.",
        ),
        click.Option(
            ["--on-behalf-of"], metavar="WHOM", expose_value=False, callback=_store("on_behalf_of"),
            help="In whose name a program calls, for the history; a grant has to allow it.",
        ),
        click.Option(
            ["--timeout"], type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", expose_value=False,
            callback=_store("timeout"), help=f"Deadline of each call; {DEFAULT_TIMEOUT_SECONDS:g} by default.",
        ),
        click.Option(
            ["-o", "--output"], type=formats, expose_value=False, callback=store_format,
            help="table for people (default), json for programs.",
        ),
    ]  # fmt: skip


class Command(click.Command):
    """A command with the shared options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_shared_options())


class Group(click.Group):
    """A group with the shared options, whose commands end with an exit code instead of a traceback."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_shared_options())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except grpc.RpcError as error:
            failure = ctx.ensure_object(Session).failure(error)
            failure.as_json = ctx.ensure_object(Session).as_json
            raise failure from error
        except MeshctlError as error:
            error.as_json = ctx.ensure_object(Session).as_json
            raise

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
from meshctl.contexts import BearerToken, Context, load, read_ca, read_token
from meshctl.endpoints import Endpoint, EndpointsError, Service, find, split_address
from meshctl.failures import ExitCode, MeshctlError, from_rpc

ADDRESS_VARIABLE = "MESHCTL_ADDRESS"
TLS_VARIABLE = "MESHCTL_TLS_FOLDER"
TOKEN_VARIABLE = "MESHCTL_TOKEN_FILE"  # noqa: S105  # the name of a variable, no password
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
    token_file: str | None = None
    ca: str | None = None
    context: str | None = None
    on_behalf_of: str = ""
    break_glass: str = ""
    wait_for_approval: float = 0.0
    """Seconds that a change waits for its second person; 0: the command ends at once."""
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    output: OutputFormat = OutputFormat.TABLE
    _connection: Connection | None = None

    @property
    def as_json(self) -> bool:
        return self.output is OutputFormat.JSON

    def connect(self) -> Connection:
        """The connection; made at first use, closed with the command."""
        if self._connection is None:
            self._connection = self.opened()
            click.get_current_context().call_on_close(self.close)
        return self._connection

    def opened(self) -> Connection:
        """A new connection. MeshctlError if the options, the environment or the context can't be used."""
        name, context = self._context()
        try:
            endpoint = find(Service.CONTROL, option=self.address, variable=ADDRESS_VARIABLE)
            if context.address:
                endpoint = Endpoint(context.address, f"from context {name}")
            split_address(endpoint.address)
            proof = self._token(context) or tls_files(endpoint, self.tls_folder or context.tls_folder)
            return Connection(endpoint, self.timeout, proof, self.on_behalf_of, self.break_glass)
        except (EndpointsError, RpcTlsError) as error:
            raise MeshctlError(str(error), ExitCode.BAD_REQUEST) from error

    def _context(self) -> tuple[str, Context]:
        """The context of the option, or the one in use; an empty one where an address is given, or none is in use.

        So a token of a context goes to no other address.
        """
        known = load()
        if self.context and self.address:
            raise MeshctlError("--context has an address of its own: leave --address out", ExitCode.BAD_REQUEST)
        if self.context:
            return self.context, known.get(self.context)
        if self.address or os.environ.get(ADDRESS_VARIABLE) or not known.current:
            return "", Context()
        return known.current, known.get(known.current)

    def _token(self, context: Context) -> BearerToken | None:
        """The token of an option, the environment or the context; an option with a certificate comes first."""
        named = self.token_file or (None if self.tls_folder else os.environ.get(TOKEN_VARIABLE) or context.token_file)
        ca = self.ca or context.ca
        return BearerToken(read_token(Path(named)), read_ca(Path(ca)) if ca else None) if named else None

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
            ["--token-file"], metavar="FILE", expose_value=False, callback=_store("token_file"),
            help=f"A bearer token for a control that takes tokens. Default: ${TOKEN_VARIABLE}, or that of the context.",
        ),
        click.Option(
            ["--ca"], metavar="FILE", expose_value=False, callback=_store("ca"),
            help="With a token: the authorities that sign control's certificate, in PEM; the system's by default.",
        ),
        click.Option(
            ["--context"], metavar="NAME", expose_value=False, callback=_store("context"),
            help="A context of `meshctl context list`, instead of the one in use.",
        ),
        click.Option(
            ["--on-behalf-of"], metavar="WHOM", expose_value=False, callback=_store("on_behalf_of"),
            help="In whose name a program calls, for the history; a grant has to allow it.",
        ),
        click.Option(
            ["--break-glass"], metavar="REASON", expose_value=False, callback=_store("break_glass"),
            help="Make a change at once that needs a second person; for admins, in an emergency. It raises an alert.",
        ),
        click.Option(
            ["--wait-for-approval"], type=click.FloatRange(min=0), metavar="SECONDS", expose_value=False,
            callback=_store("wait_for_approval"),
            help="How long to wait for the second person of a change; 0 by default.",
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
            session = ctx.ensure_object(Session)
            failure = session.failure(error)
            failure.as_json = session.as_json
            if not failure.proposal or not session.wait_for_approval:
                raise failure from error
            from meshctl.proposals import applied  # few command lines wait

            applied(session, failure.proposal)
        except MeshctlError as error:
            error.as_json = ctx.ensure_object(Session).as_json
            raise


class NameFirst(Group):
    """`move TOPIC` begins a move; `move start TOPIC` does the same, for a topic that is called like a command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, "start")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["start", *args]
        return super().resolve_command(ctx, args)

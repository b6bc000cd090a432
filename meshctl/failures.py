"""Errors for a person or a script: one sentence, the places of the error, and an exit code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import IO, Any, cast

import click
import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from meshctl.endpoints import Endpoint


class ExitCode(IntEnum):
    """Exit codes that scripts can rely on; `meshctl --help` lists them."""

    OK = 0
    REFUSED = 1
    BAD_REQUEST = 2
    UNAVAILABLE = 3
    NOT_FOUND = 4
    CONFLICT = 5
    NEEDS_APPROVAL = 6


EXIT_CODES_HELP = """\b
Exit codes:
  0  done
  1  refused: the state of the mesh does not allow it, or the server failed
  2  bad request: wrong usage, a field or a file that is not right
  3  unavailable: nothing answers, or not in time
  4  not found
  5  conflict: it exists already, or somebody else was faster (aborted)
  6  not done yet: the change waits for a second person (meshctl proposals)
"""

_EXIT_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: ExitCode.BAD_REQUEST,
    grpc.StatusCode.OUT_OF_RANGE: ExitCode.BAD_REQUEST,
    grpc.StatusCode.UNAVAILABLE: ExitCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ExitCode.UNAVAILABLE,
    grpc.StatusCode.NOT_FOUND: ExitCode.NOT_FOUND,
    grpc.StatusCode.ABORTED: ExitCode.CONFLICT,
    grpc.StatusCode.ALREADY_EXISTS: ExitCode.CONFLICT,
}

OPTIONS = {
    "set create_missing_topics": "give --create-topics",
    "set accept_skip": "give --accept-skip",
    "set allow_shadowed": "give --allow-shadowed",
    "set allow_unreachable": "give --allow-unreachable",
    "set without_members": "give --without MEMBER",
    "set stop": "give --stop",
    "set topic.source_cluster": "give --from-cluster",
    "set topic.cluster": "give --to-cluster",
    "set force": "give --force",
    "set partitioning to BY_KEY": "give --by-key",
}
"""Control names fields of its API as the remedy; these options set the fields in a command."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong, and where: a request field, a resource, or a line of a file."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class MeshctlError(click.ClickException):
    """Ends the command with a message and an exit code; never a traceback."""

    def __init__(
        self,
        message: str,
        exit_code: ExitCode,
        *,
        status: str = "",
        violations: Iterable[Violation] = (),
        as_json: bool = False,
        proposal: str = "",
    ) -> None:
        super().__init__(message)
        self.exit_code = int(exit_code)
        self.status = status or exit_code.name
        self.violations = tuple(violations)
        self.as_json = as_json
        self.proposal = proposal
        """The proposal as which the change waits for a second person."""

    def document(self) -> dict[str, Any]:
        """The error for a program."""
        violations = [{"place": violation.place, "text": violation.text} for violation in self.violations]
        body: dict[str, Any] = {
            "status": self.status,
            "message": self.message,
            "violations": violations,
            "exit_code": self.exit_code,
        }
        if self.proposal:
            body["proposal"] = self.proposal
        return {"error": body}

    def show(self, file: IO[Any] | None = None) -> None:
        stream = file or click.get_text_stream("stderr")
        if self.as_json:
            click.echo(json.dumps(self.document(), ensure_ascii=False), file=stream)
            return
        click.echo(f"meshctl: {self.message}", file=stream)
        for violation in self.violations:
            click.echo(f"  {violation}", file=stream)


def as_call(error: grpc.RpcError) -> grpc.Call:
    """The call in the error of a call: grpc promises that it is one, its types do not say so."""
    return cast(grpc.Call, error)


def is_from_control(error: grpc.RpcError) -> bool:
    """Whether control itself refused the call: its refusals carry details, those of gRPC do not."""
    return _status(as_call(error)) is not None


def from_rpc(error: grpc.RpcError, endpoint: Endpoint, options: Mapping[str, str] = OPTIONS) -> MeshctlError:
    """The failure of a call, in the server's own words where it has any. `options`: see `OPTIONS`."""
    call = as_call(error)
    code = call.code()
    words = _with_options(call.details() or "", options)
    status = _status(call)
    where = f"control at {endpoint.address} ({endpoint.source})"
    if status is None:  # control's own refusals carry details: this is grpc's, or a fault
        words = _without_details(code, words, where)
    violations = [each for each in _violations(status, options) if words not in (each.text, str(each))]
    proposal = _proposal(status)
    exit_code = ExitCode.NEEDS_APPROVAL if proposal else _EXIT_CODES.get(code, ExitCode.REFUSED)
    return MeshctlError(
        words or f"{where} answered {code.name}", exit_code, status=code.name, violations=violations, proposal=proposal
    )


def _proposal(status: status_pb2.Status | None) -> str:
    """The name of the proposal as which control keeps the change; empty for any other refusal."""
    for detail in status.details if status else ():
        precondition = error_details_pb2.PreconditionFailure()
        if detail.Unpack(precondition):
            for each in precondition.violations:
                if each.type == "NEEDS_APPROVAL":
                    return str(each.subject)
    return ""


def _with_options(words: str, options: Mapping[str, str]) -> str:
    for field, option in options.items():
        words = words.replace(field, option)
    return words


def _without_details(code: grpc.StatusCode, words: str, where: str) -> str:
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            way_out = (
                "start the mesh with `kafka-mesh up`, name another address with --address, "
                "or a certificate with --tls-folder if control asks for one"
            )
            return f"{where} does not answer ({words}); {way_out}"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            way_out = "a change may still happen: see `meshctl history`, or raise --timeout"
            return f"{where} did not answer in time; {way_out}"
        case grpc.StatusCode.UNIMPLEMENTED:
            return f"{where} does not know this call; it is another service, or an older version"
        case grpc.StatusCode.UNKNOWN | grpc.StatusCode.INTERNAL:
            return f"{where} failed: {words or code.name}"
        case _:
            return words


def _status(error: grpc.Call) -> status_pb2.Status | None:
    try:
        return rpc_status.from_call(error)
    except ValueError:  # details that contradict the status: show the status alone
        return None


def _violations(status: status_pb2.Status | None, options: Mapping[str, str]) -> list[Violation]:
    def said(text: str) -> str:
        return _with_options(text, options)

    found: list[Violation] = []
    for detail in status.details if status else ():
        bad_request = error_details_pb2.BadRequest()
        precondition = error_details_pb2.PreconditionFailure()
        if detail.Unpack(bad_request):
            found += [Violation(each.field, said(each.description)) for each in bad_request.field_violations]
        elif detail.Unpack(precondition):
            found += [Violation(each.subject, said(each.description)) for each in precondition.violations]
    return found

"""How a call to control, or to a gateway, ended, in words: refused, no answer, or unknown. No I/O.

A change whose call ended without control's word may have been made. The console calls that unknown, never a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import cast

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status


class Ending(Enum):
    """How a call ended that control did not answer with OK."""

    REFUSED = "refused"
    """Control said no: nothing has changed."""
    NOT_ALLOWED = "not allowed"
    """Control knows the caller, who may not make the call."""
    LOGIN_NEEDED = "log-in needed"
    """Control knows no such caller: the token has expired, for example."""
    ABSENT = "absent"
    """The thing does not exist."""
    AWAY = "away"
    """Nothing was sent to control, or a question has no answer: nothing has changed by it."""
    BUSY = "busy"
    """As many do this now as may."""
    UNKNOWN = "unknown"
    """A change was sent, and control's answer did not come: the change may have been made."""


CONTROL, CONSOLE, GATEWAY = "Control", "The console", "The gateway"
"""Those who refuse."""
STATUS = {
    Ending.REFUSED: HTTPStatus.CONFLICT,
    Ending.NOT_ALLOWED: HTTPStatus.FORBIDDEN,
    Ending.LOGIN_NEEDED: HTTPStatus.UNAUTHORIZED,
    Ending.ABSENT: HTTPStatus.NOT_FOUND,
    Ending.AWAY: HTTPStatus.SERVICE_UNAVAILABLE,
    Ending.BUSY: HTTPStatus.TOO_MANY_REQUESTS,
    Ending.UNKNOWN: HTTPStatus.GATEWAY_TIMEOUT,
}
_TITLES = {
    Ending.REFUSED: "{} refused this",
    Ending.NOT_ALLOWED: "You may not see or do this",
    Ending.LOGIN_NEEDED: "Log in first",
    Ending.ABSENT: "There is no such thing",
    Ending.AWAY: "{} does not answer",
    Ending.BUSY: "Too many do this now",
    Ending.UNKNOWN: "The outcome is unknown",
}
NOT_SENT = ("failed to connect", "connections to all backends failing", "dns resolution failed", "tsi handshake")
"""Parts of gRPC's own words, in small letters, for a call that never left this machine."""
_CODES = {
    grpc.StatusCode.UNAVAILABLE: Ending.AWAY,
    grpc.StatusCode.PERMISSION_DENIED: Ending.NOT_ALLOWED,
    grpc.StatusCode.UNAUTHENTICATED: Ending.LOGIN_NEEDED,
    grpc.StatusCode.NOT_FOUND: Ending.ABSENT,
}
_SILENT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.DATA_LOSS,
)
"""Codes that gRPC itself may give where control has said nothing."""


@dataclass(eq=False)
class CallError(Exception):
    """A call that was not answered with OK."""

    ending: Ending
    code: str
    text: str
    """Control's own sentence, or what the console knows."""
    details: tuple[str, ...] = ()
    by: str = CONTROL
    """The one that was asked."""
    proposal: str = ""
    """The id of the proposal as which the change waits for a second person."""

    @property
    def title(self) -> str:
        return _TITLES[self.ending].format(self.by)

    def __str__(self) -> str:
        return self.text


def failure(error: grpc.RpcError, *, decides: bool) -> CallError:
    """`decides`: the call wanted to change something."""
    call = cast("grpc.Call", error)  # grpc promises so, its types do not say so
    code, words = call.code(), call.details() or ""
    said = _details(call)
    if code in _SILENT and said is None:
        return _unanswered(code, words, decides=decides)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:  # of a change: control decided, and what it waited for did not come
        ending = Ending.UNKNOWN if decides else Ending.AWAY
    else:
        ending = _CODES.get(code, Ending.REFUSED)
    details = tuple(each for each in said or () if each not in words)
    return CallError(ending, code.name, words or code.name, details, proposal=_proposal(call))


def _proposal(call: grpc.Call) -> str:
    """The id of the proposal that control has made of a change; empty for any other refusal."""
    status, state = rpc_status.from_call(call), error_details_pb2.PreconditionFailure()
    for detail in status.details if status is not None else ():
        if detail.Unpack(state):
            for each in state.violations:
                if each.type == "NEEDS_APPROVAL":
                    return str(each.subject).partition("/")[2]
    return ""


def _unanswered(code: grpc.StatusCode, words: str, *, decides: bool) -> CallError:
    sent = code is not grpc.StatusCode.UNAVAILABLE or not any(each in words.lower() for each in NOT_SENT)
    if decides and sent:
        text = "Control did not answer in time. The change may have been made, or may still be made."
        return CallError(Ending.UNKNOWN, code.name, text, (words,) if words else ())
    text = "The console asked control and got no answer, so this page has no figures."
    return CallError(Ending.AWAY, code.name, text, (words,) if words else ())


def _details(call: grpc.Call) -> list[str] | None:
    """The violations that control names; None if control said nothing in the form of its refusals."""
    try:
        status = rpc_status.from_call(call)
    except ValueError:  # details that contradict the status
        return None
    if status is None:
        return None
    found: list[str] = []
    for detail in status.details:
        request, state = error_details_pb2.BadRequest(), error_details_pb2.PreconditionFailure()
        if detail.Unpack(request):
            found += [f"{each.field}: {each.description}" for each in request.field_violations]
        elif detail.Unpack(state):
            found += [each.description for each in state.violations]
    return found

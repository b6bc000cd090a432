"""Answers that control stores for a request_id, and refusals as gRPC statuses."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message
from google.rpc.status_pb2 import Status

from mesh.rpc import errors
from services.control.domain.errors import (
    Conflict,
    Exists,
    InvalidField,
    NotAllowed,
    Refusal,
    Unavailable,
    Unfollowed,
    Unknown,
)
from services.control.store.drafts import Caller
from services.control.store.log import StoredAnswer

M = TypeVar("M", bound=Message)

STATUS_KEY = "grpc-status-details-bin"


def as_rpc_error(refusal: Refusal) -> errors.RpcError:
    """The gRPC status of a refusal, with its google.rpc details."""
    match refusal:
        case InvalidField():
            return errors.bad_request(refusal.field, refusal.description)
        case Unknown():
            return errors.not_found(refusal.resource, refusal.message)
        case Exists():
            return errors.already_exists(refusal.resource, refusal.message)
        case NotAllowed():
            return errors.precondition(refusal.kind, refusal.subject, refusal.message)
        case Conflict():
            return errors.aborted(refusal.reason, refusal.message, refusal.facts)
        case Unavailable():
            return errors.unavailable(refusal.reason, refusal.message, refusal.facts)
        case Unfollowed():
            facts = {"members": ", ".join(refusal.missing), "revision": str(refusal.revision)}
            return errors.deadline_exceeded("MEMBERS_BEHIND", refusal.message, facts)
        case _:
            raise TypeError(f"no status for {type(refusal).__name__}")


def stored_response(caller: Caller, response: Message) -> StoredAnswer | None:
    if not caller.request_id:
        return None
    return StoredAnswer(caller.request_id, caller.digest, True, response.SerializeToString())


def stored_failure(request_id: str, digest: bytes, refusal: Refusal) -> StoredAnswer:
    metadata = dict(as_rpc_error(refusal).status().trailing_metadata or ())
    status = metadata[STATUS_KEY]
    return StoredAnswer(request_id, digest, False, status if isinstance(status, bytes) else status.encode())


def replayed(kind: type[M], answer: StoredAnswer) -> M:
    """The response of the first call; raises ReplayedFailure if control refused the first call."""
    if answer.ok:
        return kind.FromString(answer.answer)
    raise ReplayedFailure(Status.FromString(answer.answer))


class ReplayedFailure(Exception):  # noqa: N818  (an answer)
    """The status with which the first call failed."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status

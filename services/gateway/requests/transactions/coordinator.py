"""Asking the coordinator of a transactional id, or that of a group on behalf of one."""

from collections.abc import Generator, Mapping
from typing import Any, Final, TypeVar

from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.plan import (
    Call,
    Command,
    Coordinator,
    Forget,
    KeyType,
    Lane,
    MeshView,
    Unreachable,
    ask_all,
)
from services.gateway.requests.versions import fitted
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.schema import Struct

M = TypeVar("M", bound=Struct)

SECOND_PROTOCOL: Final = {ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
"""Versions of the second protocol of transactions (KIP-890): the same fields mean more, so no older version replaces
them."""


def coordinator_of(transactional_id: str) -> Coordinator:
    return Coordinator(transactional_id, KeyType.TRANSACTION)


def ask_coordinator(
    cluster: str | None,
    coordinator: Coordinator,
    message: Struct,
    version: int,
    answer: type[M],
    mesh: MeshView,
) -> Generator[Command, Any, M | ErrorCode]:
    """The coordinator's answer, or an error if it can't be asked: retriable, unless its cluster lacks the version."""
    if cluster is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    outcomes = yield from ask_coordinators({cluster: message}, coordinator, version, answer, mesh)
    return outcomes[cluster]


def ask_coordinators(
    messages: Mapping[str, Struct], coordinator: Coordinator, version: int, answer: type[M], mesh: MeshView
) -> Generator[Command, Any, dict[str, M | ErrorCode]]:
    """Asks the coordinators of several clusters at once, each with a message of its own."""
    found: dict[str, M | ErrorCode] = {}
    calls: list[Call] = []
    for cluster, message in messages.items():
        asked = Call(cluster, message, version, coordinator, Lane.CLIENT)
        call = fitted(asked, mesh)
        if isinstance(call, Unreachable) or call.version < SECOND_PROTOCOL.get(ApiKey(asked.key), 0) <= version:
            found[cluster] = ErrorCode.UNSUPPORTED_VERSION
        else:
            calls.append(call)
    outcomes = yield from ask_all(calls, answer, preliminary=True)
    for call, outcome in zip(calls, outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            yield Forget(call.cluster, coordinator)
            away = ErrorCode.UNSUPPORTED_VERSION if outcome.unsupported else ErrorCode.COORDINATOR_NOT_AVAILABLE
            found[call.cluster] = away
            continue
        if getattr(outcome, "error_code", ErrorCode.NONE) in COORDINATOR_MOVED:
            yield Forget(call.cluster, coordinator)
        found[call.cluster] = outcome
    return found

"""Questions that each partition's leader answers: split by leader on each topic's owner, one result a partition."""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol, TypeVar

from services.gateway.requests.placement import LEADER_ERRORS, Place, Wanted, locate
from services.gateway.requests.plan import Call, Command, MeshView, Stale, Unreachable
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.schema import Struct


class PartitionResult(Protocol):
    partition_index: int
    error_code: int


T = TypeVar("T")
M = TypeVar("M", bound=Struct)
P = TypeVar("P", bound=PartitionResult)


def ask_leaders(
    mesh: MeshView,
    wanted: Iterable[Wanted[T]],
    question: Callable[[Place, list[Wanted[T]]], Call],
    answer: type[M],
    results_of: Callable[[M], Iterable[tuple[str, P]]],
    failed: Callable[[int, ErrorCode], P],
) -> Generator[Command, Any, dict[tuple[str, int], P]]:
    """The result of each wanted partition, by topic and index.

    A leader that does not answer may have moved: NOT_LEADER_OR_FOLLOWER makes clients look for the new leader. A leader
    that is too old for the question stays too old: UNSUPPORTED_VERSION.
    """
    located = yield from locate(mesh, wanted)
    results = {(w.topic, w.partition): failed(w.partition, error) for w, error in located.homeless}
    calls = [question(place, parts) for place, parts in located.places.items()]
    outcomes = yield from ask_fitting(mesh, calls, answer)
    for (place, parts), outcome in zip(located.places.items(), outcomes, strict=True):
        told: dict[tuple[str, int], P] = {}
        silent = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if isinstance(outcome, Unreachable):
            silent = ErrorCode.UNSUPPORTED_VERSION if outcome.unsupported else silent
        else:
            told = {(topic, result.partition_index): result for topic, result in results_of(outcome)}
        stale: set[str] = set()
        for w in parts:
            result = told.get((w.topic, w.partition)) or failed(w.partition, silent)
            results[w.topic, w.partition] = result
            if result.error_code in LEADER_ERRORS:
                stale.add(w.topic)
        if stale:
            yield Stale(place.cluster, tuple(sorted(stale)))
    return results

"""Resources without an owner are asked of every cluster: quotas, SCRAM users, tokens, features, most access rights.

If one cluster fails, the gateway takes nothing back on the others. The item's answer is an error then, with a sentence
that names the clusters that failed and those that succeeded (`verdicts.joined`). All of these requests may be sent
again.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Any, TypeVar

from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    AnyBroker,
    Call,
    Command,
    Lane,
    MeshView,
    Target,
    Unreachable,
)
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.schema import Struct

M = TypeVar("M", bound=Struct)


def ask_each(
    mesh: MeshView,
    questions: Mapping[str, Struct],
    version: int,
    answer: type[M],
    target: Target = AnyBroker(),  # noqa: B008  # frozen
    lane: Lane = Lane.CLIENT,
    timeout_s: float = CALL_TIMEOUT_S,
) -> Generator[Command, Any, dict[str, M | Unreachable]]:
    """Each cluster's answer to its own question, by name of the cluster."""
    calls = [Call(name, question, version, target, lane, timeout_s) for name, question in questions.items()]
    outcomes = yield from ask_fitting(mesh, calls, answer)
    return dict(zip(questions, outcomes, strict=True))


def ask_everywhere(
    mesh: MeshView,
    question: Struct,
    version: int,
    answer: type[M],
    target: Target = AnyBroker(),  # noqa: B008
) -> Generator[Command, Any, dict[str, M | Unreachable]]:
    """Every cluster's answer to the same question, by name of the cluster."""
    return (yield from ask_each(mesh, dict.fromkeys(mesh.table.clusters, question), version, answer, target))


def by_home_first(clusters: Iterable[str], mesh: MeshView) -> list[str]:
    """The clusters with the mesh's home first: if clusters differ, the first value counts."""
    home = mesh.table.home
    return sorted(clusters, key=lambda name: home is None or name != home.name)

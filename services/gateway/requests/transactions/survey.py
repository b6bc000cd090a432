"""The state of a transactional id on each cluster: asked each time, never guessed.

FindCoordinator makes a cluster create its internal topic for transactions, so clusters that have none are not asked:
they know no transactional id at all. Clusters before Kafka 3.0 can't be asked.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from mesh.transactions import STATE_TOPIC, Identity
from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.plan import Ask, Call, Command, Forget, Lane, MeshView, Outcome, Unreachable, refresh
from services.gateway.requests.transactions.coordinator import coordinator_of
from services.gateway.requests.transactions.home import takes_part
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

LOOK_UP_TIMEOUT_S: Final = 3.0
VERSION: Final = 0
MARGIN_MS: Final = 5_000
"""The time that each part must have left when a commit is decided, or half of its time-out if that is less. This time
covers the commit itself, and the difference between the clocks of gateway and broker."""


def identity_of(state: TransactionState) -> Identity:
    return Identity(state.producer_id, state.producer_epoch)


def short_of_time(states: Mapping[str, TransactionState], mesh: MeshView) -> str | None:
    """Why a cluster may abort the transaction before a commit that is sent now arrives; None if each has time left."""
    now_ms = mesh.time_ms + int(1000 * (mesh.clock() - mesh.now))
    for cluster, state in states.items():
        left_ms = state.transaction_start_time_ms + state.transaction_timeout_ms - now_ms
        if left_ms < min(MARGIN_MS, state.transaction_timeout_ms // 2):
            return f"the transaction has no time left on {cluster}: {left_ms} of {state.transaction_timeout_ms} ms"
    return None


def survey(
    transactional_id: str, clusters: Iterable[str], mesh: MeshView, *, own_names: bool = False
) -> Generator[Command, Any, Mapping[str, TransactionState | Unreachable]]:
    """The state of the id on each cluster. Clusters that do not know the id, or are too old to answer, are left out.

    `own_names`: topics have the cluster's own names, and not those of the client.
    """
    found: dict[str, TransactionState | Unreachable] = {}
    asked: list[str] = []
    for cluster in clusters:
        knowledge = mesh.clusters[cluster]
        if not takes_part(cluster, mesh):
            continue
        if knowledge.partition_count(STATE_TOPIC) is None:
            failed = yield from refresh(cluster, (STATE_TOPIC,))
            if failed is not None:
                found[cluster] = failed
            if knowledge.partition_count(STATE_TOPIC) is None:
                continue
        asked.append(cluster)
    told = yield from _describe(transactional_id, asked, own_names)
    moved = [cluster for cluster, state in told.items() if _may_have_moved(state, cluster, mesh)]
    if moved:
        for cluster in moved:
            yield Forget(cluster, coordinator_of(transactional_id))
        told |= yield from _describe(transactional_id, moved, own_names)
    for cluster, state in told.items():
        if isinstance(state, Unreachable) or not state.error_code:
            found[cluster] = state
        elif state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            found[cluster] = Unreachable(cluster, f"its coordinator answers {error_name(state.error_code)}")
    return found


def _describe(
    transactional_id: str, clusters: Sequence[str], own_names: bool
) -> Generator[Command, Any, dict[str, TransactionState | Unreachable]]:
    if not clusters:
        return {}
    question = DescribeTransactionsRequest([transactional_id])
    target = coordinator_of(transactional_id)
    calls = tuple(
        Call(c, question, VERSION, target, Lane.SHARED, LOOK_UP_TIMEOUT_S, by_mesh=own_names, own_names=own_names)
        for c in clusters
    )
    outcomes: tuple[Outcome, ...] = yield Ask(calls, preliminary=True)
    told: dict[str, TransactionState | Unreachable] = {}
    for cluster, outcome in zip(clusters, outcomes, strict=True):
        if isinstance(outcome, DescribeTransactionsResponse) and outcome.transaction_states:
            told[cluster] = outcome.transaction_states[0]
        elif isinstance(outcome, Unreachable):
            told[cluster] = outcome
        else:
            told[cluster] = Unreachable(cluster, "an answer without the transactional id")
    return told


def _may_have_moved(state: TransactionState | Unreachable, cluster: str, mesh: MeshView) -> bool:
    if isinstance(state, Unreachable):
        return state.never_sent and mesh.clusters[cluster].available
    return state.error_code in COORDINATOR_MOVED

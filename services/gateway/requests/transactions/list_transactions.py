"""ListTransactions: the transactional ids of every broker of every cluster.

A broker lists the ids that it coordinates. Several clusters know an id whose transactions span them, or whose home has
moved. The list shows such an id once for each producer id that a cluster has given it: tools find a transaction by that
number.
"""

from services.gateway.requests.plan import Broker, Call, MeshView, Plan, Request, Unreachable, refresh
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ListTransactionsRequest)
    calls = []
    for name in mesh.table.clusters:
        if not mesh.clusters[name].brokers:
            yield from refresh(name, ())
        calls += [Call(name, message, request.version, Broker(broker)) for broker in mesh.clusters[name].brokers]
    outcomes = yield from ask_fitting(mesh, calls, ListTransactionsResponse)
    answers = [outcome for outcome in outcomes if not isinstance(outcome, Unreachable)]
    if mesh.table.clusters and not answers:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    states: dict[tuple[str, int], TransactionState] = {}
    for answer in answers:
        for state in answer.transaction_states:
            states.setdefault((state.transactional_id, state.producer_id), state)
    # one broker that still loads its ids makes a client ask again, as on one cluster
    failed = next((answer.error_code for answer in answers if answer.error_code), ErrorCode.NONE)
    if any(isinstance(outcome, Unreachable) and _lacks_filter(outcome, mesh) for outcome in outcomes):
        failed = ErrorCode.UNSUPPORTED_VERSION
    return ListTransactionsResponse(
        error_code=failed,
        unknown_state_filters=sorted({name for answer in answers for name in answer.unknown_state_filters}),
        transaction_states=list(states.values()),
    )


def _lacks_filter(outcome: Unreachable, mesh: MeshView) -> bool:
    """Whether a cluster lists transactions, but lacks the filter; a cluster before Kafka 3.0 lists none at all."""
    return outcome.unsupported and ApiKey.LIST_TRANSACTIONS in mesh.clusters[outcome.cluster].versions

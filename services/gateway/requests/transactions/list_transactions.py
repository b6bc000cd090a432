"""ListTransactions: the transactional ids of every broker of every cluster, each once.

A broker lists the ids that it coordinates. Several clusters know an id whose transactions span them, or whose home has
moved. The list shows such an id with the identity at its home. If another cluster has a part that is open, and home has
not, the state is that of the part, as in DescribeTransactions. A tool that asks for producer ids has found these ids in
partitions of any cluster (`kafka-transactions find-hanging`): the list shows the id under each of them. The first node
is the coordinator of every id, so the other nodes list none. The gateway knows which node is asked if each node has a
port or a host name of its own. Admin clients of Java, those of Kafka 4.4 included, name no node: without such ports,
each node lists all.
"""

from collections.abc import Iterable
from dataclasses import replace

from mesh.transactions import OPEN
from services.gateway.requests.plan import Broker, Call, MeshView, Plan, Request, Unreachable, refresh
from services.gateway.requests.transactions.home import transaction_home
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
    asked = mesh.session.asked_node
    if asked in {node.node_id for node in mesh.nodes.all[1:]}:
        return ListTransactionsResponse()
    calls = []
    for name in mesh.table.clusters:
        if not mesh.clusters[name].brokers:
            yield from refresh(name, ())
        calls += [Call(name, message, request.version, Broker(broker)) for broker in mesh.clusters[name].brokers]
    outcomes = yield from ask_fitting(mesh, calls, ListTransactionsResponse)
    answers = [outcome for outcome in outcomes if not isinstance(outcome, Unreachable)]
    if mesh.table.clusters and not answers:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    told = [
        (call.cluster, state)
        for call, outcome in zip(calls, outcomes, strict=True)
        if not isinstance(outcome, Unreachable)
        for state in outcome.transaction_states
    ]
    states = (
        list({(state.transactional_id, state.producer_id): state for _, state in told}.values())
        if message.producer_id_filters
        else _each_once(told, mesh)
    )
    # one broker that still loads its ids makes a client ask again, as on one cluster
    failed = next((answer.error_code for answer in answers if answer.error_code), ErrorCode.NONE)
    if any(isinstance(outcome, Unreachable) and _lacks_filter(outcome, mesh) for outcome in outcomes):
        failed = ErrorCode.UNSUPPORTED_VERSION
    return ListTransactionsResponse(
        error_code=failed,
        unknown_state_filters=sorted({name for answer in answers for name in answer.unknown_state_filters}),
        transaction_states=states,
    )


def _each_once(told: Iterable[tuple[str, TransactionState]], mesh: MeshView) -> list[TransactionState]:
    """Each id with its identity at home, or on the first cluster that knows it."""
    shown: dict[str, TransactionState] = {}
    for _, state in sorted(told, key=lambda each: each[0] != transaction_home(each[1].transactional_id, mesh)):
        known = shown.setdefault(state.transactional_id, state)
        if state.transaction_state in OPEN and known.transaction_state not in OPEN:
            shown[state.transactional_id] = replace(known, transaction_state=state.transaction_state)
    return list(shown.values())


def _lacks_filter(outcome: Unreachable, mesh: MeshView) -> bool:
    """Whether a cluster lists transactions, but lacks the filter; a cluster before Kafka 3.0 lists none at all."""
    return outcome.unsupported and ApiKey.LIST_TRANSACTIONS in mesh.clusters[outcome.cluster].versions

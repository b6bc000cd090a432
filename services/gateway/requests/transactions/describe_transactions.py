"""DescribeTransactions: one state of a transactional id, from the coordinators of all clusters.

The id's home decides the answer, with the identity that the client uses. Another cluster adds its partitions, and its
state if a transaction is open there. That is a part of a transaction that spans clusters, or a transaction left behind
when the id moved.
"""

from collections.abc import Generator
from typing import Any

from mesh.transactions import OPEN
from services.gateway.requests.plan import Command, MeshView, Plan, Request, Unreachable
from services.gateway.requests.topic_names import is_internal
from services.gateway.requests.transactions.home import transaction_home
from services.gateway.requests.transactions.survey import survey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeTransactionsRequest)
    states = []
    for transactional_id in message.transactional_ids:
        state = yield from _describe(transactional_id, mesh)
        states.append(state)
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(transactional_id: str, mesh: MeshView) -> Generator[Command, Any, TransactionState]:
    home = transaction_home(transactional_id, mesh)
    in_order = sorted(mesh.table.clusters, key=lambda cluster: cluster != home)
    known = yield from survey(transactional_id, in_order, mesh)
    parts = [state for cluster in in_order if isinstance(state := known.get(cluster), TransactionState)]
    if not parts:
        away = any(isinstance(state, Unreachable) for state in known.values())
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE if away else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return TransactionState(error, transactional_id)
    whole = parts[0]
    for part in parts[1:]:
        whole.topics += part.topics
        if part.transaction_state in OPEN and whole.transaction_state not in OPEN:
            whole.transaction_state = part.transaction_state
            whole.transaction_start_time_ms = part.transaction_start_time_ms
    whole.topics = [topic for topic in whole.topics if not is_internal(topic.topic)]
    return whole

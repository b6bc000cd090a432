"""Finds the coordinators of one cluster's groups: on demand, once for all callers that wait, and remembered.

If the cluster may not tell the gateway the coordinator, the call goes to any broker, which refuses it in its own words:
brokers check access rights first. Without a refusal the client would look for the coordinator for ever.
"""

from collections.abc import Callable
from typing import Protocol

from services.gateway.requests.bounded_cache import BoundedCache
from services.gateway.requests.knowledge import BrokerAddress, ClusterKnowledge, VersionRange
from services.gateway.requests.plan import Call, Coordinator, KeyType, Unreachable
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

COORDINATORS_REMEMBERED = 100_000
LONGEST_KEY = 1000
"""Letters of a group or transactional id that is remembered; the coordinator of a longer id is found each time."""
FIND_VERSION = 3
"""The last version whose answer names one coordinator; version 0 knows groups alone."""
NO_RIGHT = frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
"""The gateway lacks the right to see the group or the transactional id."""

Resolved = Callable[[int | Unreachable], None]


class Ask(Protocol):
    """Sends a call of the gateway's own to any broker of the cluster."""

    def __call__(self, call: Call, done: Callable[[FindCoordinatorResponse | Unreachable], None]) -> None: ...


class Coordinators:
    """See above."""

    def __init__(self, knowledge: ClusterKnowledge, ask: Ask, any_broker: Callable[[], int | None]) -> None:
        self._knowledge = knowledge
        self._ask = ask
        self._any_broker = any_broker
        self._known: BoundedCache[Coordinator, int] = BoundedCache(COORDINATORS_REMEMBERED, float("inf"))
        self._finding: dict[Coordinator, list[Resolved]] = {}

    def known(self, coordinator: Coordinator) -> int | None:
        """The broker id of the coordinator, if it was found before."""
        return self._known.get(coordinator, 0)

    def forget(self, coordinator: Coordinator) -> None:
        self._known.drop(coordinator)

    def find(self, coordinator: Coordinator, then: Resolved) -> None:
        """`then` gets the broker id, or the reason why there is none, maybe before this returns."""
        waiting = self._finding.get(coordinator)
        if waiting is not None:
            waiting.append(then)
            return
        self._finding[coordinator] = [then]
        spoken = self._knowledge.versions.get(ApiKey.FIND_COORDINATOR, VersionRange(0, 0))
        key_type = coordinator.key_type.value if coordinator.key_type is not KeyType.GROUP else 0
        request = FindCoordinatorRequest(key=coordinator.key, key_type=key_type)
        call = Call(self._knowledge.name, request, min(FIND_VERSION, spoken.high))
        self._ask(call, lambda outcome: self._found(coordinator, outcome))

    def _found(self, coordinator: Coordinator, outcome: FindCoordinatorResponse | Unreachable) -> None:
        knowledge = self._knowledge
        result: int | Unreachable
        if isinstance(outcome, Unreachable):
            result = outcome
        elif outcome.error_code in NO_RIGHT and (any_broker := self._any_broker()) is not None:
            result = any_broker
        elif outcome.error_code:
            reason = f"no coordinator for {coordinator.key!r}: error {outcome.error_code}"
            result = Unreachable(knowledge.name, reason, never_sent=True)
        else:
            result = outcome.node_id
            if len(coordinator.key) <= LONGEST_KEY:
                self._known.put(coordinator, result, 0)
            if result not in knowledge.brokers:
                knowledge.brokers[result] = BrokerAddress(result, outcome.host, outcome.port, None)
        for then in self._finding.pop(coordinator):
            then(result)

"""The states of a transactional id, as coordinators name them (KIP-664)."""

from collections.abc import Set as AbstractSet
from typing import Final

from mesh.transactions.registry import EPOCHS

ONGOING: Final = "Ongoing"
STATE_TOPIC: Final = "__transaction_state"
"""The topic of a cluster's coordinators. To look a coordinator up creates it."""
SECOND_PROTOCOL_SINCE: Final = 5
"""The first version of EndTxn that belongs to the second protocol (KIP-890)."""
PART_TIMEOUT_MS: Final = 899_989
"""The time-out of a part on another cluster than home: a cluster may be away for so long after the decision.

Brokers allow 15 minutes (`transaction.max.timeout.ms`). No client asks for this odd value, so it also marks a part.
"""
COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})
OPEN: Final = frozenset({ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States in which a transaction has not ended."""


def was_committed(state: str, epoch: int, registered: AbstractSet[int], *, second_protocol: bool) -> bool:
    """Whether a part is committed that was registered under these remainders of epochs (`registry`).

    By the second protocol (KIP-890) a commit raises the producer's epoch.
    """
    return state in COMMITTED and registered == {(epoch - second_protocol) % EPOCHS}

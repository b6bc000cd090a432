"""The states of a transactional id, as coordinators name them (KIP-664)."""

from typing import Final

ONGOING: Final = "Ongoing"
COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})
OPEN: Final = frozenset({ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States in which a transaction has not ended."""

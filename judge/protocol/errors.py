"""Error codes of answers, by what they tell about the request: it may be tried again, it happened, it did not."""

from __future__ import annotations

RETRIABLE = frozenset({3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 51, 56, 72, 74, 75, 78, 84, 89, 100, 103, 112})
MAY_HAVE_HAPPENED = frozenset({7, 13, 20, -1})
"""Time-outs, a lost connection behind the broker, a write that lacks replicas; and what the broker cannot name."""
END_MAY_HAVE_HAPPENED = MAY_HAVE_HAPPENED | {15, 51}
"""Of EndTxn too: a coordinator names a slow write of its decision COORDINATOR_NOT_AVAILABLE (TransactionStateManager),
and markers that it still writes CONCURRENT_TRANSACTIONS.
"""
OUT_OF_RANGE = 1
OUT_OF_ORDER = 45
DUPLICATE = 46
CONCURRENT_TRANSACTIONS = 51


class KafkaError(Exception):
    """An answer with an error code."""

    def __init__(self, code: int, api: str) -> None:
        super().__init__(f"{api} answered error {code}")
        self.code = code

    @property
    def is_retriable(self) -> bool:
        return self.code in RETRIABLE


def check(code: int, api: str) -> None:
    if code:
        raise KafkaError(code, api)

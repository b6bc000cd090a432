"""Waits until the markers of a transaction that has ended are written.

A broker answers EndTxn when the end is decided, and writes the markers then. So the ends of logs, and the answers of
polls, depend on the time that has passed since. A client of the recording took its time; a replay takes none.
"""

from __future__ import annotations

import time

from judge.protocol.apis import DESCRIBE_TRANSACTIONS
from judge.protocol.connection import Address, Connection
from judge.protocol.schema import ProtocolError
from judge.replay.errors import UNSETTLED

WRITTEN = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
LOOK_S = 0.02
ANSWER_S = 5.0


def await_markers(to: Address, transactional_id: str, within_s: float) -> bool:
    """Whether the markers are written; False also where the endpoint does not tell."""
    deadline = time.monotonic() + within_s
    with Connection(to, "judge-replay", ANSWER_S) as connection:
        while time.monotonic() < deadline:
            try:
                [told] = connection.request(DESCRIBE_TRANSACTIONS, {"ids": [transactional_id]})["states"]
            except (OSError, ProtocolError):
                return False
            if told["error"] and told["error"] not in UNSETTLED:
                return False
            if not told["error"] and told["state"] in WRITTEN:
                return True
            time.sleep(LOOK_S)
    return False

"""Why records are dead letters, as the contract lists it and the header `dlq.reason` says it."""

from __future__ import annotations

from mesh.rpc import replays

_PREFIX = "DEAD_LETTER_REASON_"

REASONS = tuple(
    sorted(
        name.removeprefix(_PREFIX).lower()
        for name, number in replays.DeadLetterReason.items()
        if number != replays.DEAD_LETTER_REASON_UNSPECIFIED
    )
)
"""backend, deserialization, oversize, retries."""

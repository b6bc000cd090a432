"""The logs that a client saw, put together from the answers to its polls.

Kafka promises the content of a log, and not which answer brings it. So the batches of all answers of an endpoint are
compared, each at its offset. An endpoint that answers twice with different batches at one offset has both compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from judge.replay.bindings import Bindings, Bound
from judge.replay.comparing import MISSING, Difference
from judge.replay.conversation import Exchange
from judge.replay.record_batches import OFFSET_AND_SIZE, Stored, split, stored
from judge.replay.side import FETCH, SHARE_FETCH, Side

PATH = "Responses[].Partitions[].Records"
Place = tuple[object, int]
Log = dict[int, list[Stored | bytes]]
"""By offset, the different batches that answers brought: one, unless the endpoint is wrong."""


def logs(side: Side, exchanges: list[Exchange]) -> dict[Place, Log]:
    found: dict[Place, Log] = {}
    for exchange in exchanges:
        messages = side.told_by_all(exchange) if exchange.request.key in (FETCH, SHARE_FETCH) else ()
        for topic in (topic for message in messages for topic in message.get("Responses") or ()):
            for partition in topic["Partitions"]:
                place = side.bindings.topic_name(topic, recorded=True), partition["PartitionIndex"]
                log = found.setdefault(place, {})
                for batch in split(partition.get("Records") or b""):
                    offset = int.from_bytes(batch[:8], "big", signed=True)
                    seen, known = _stored(batch, side.bindings), log.setdefault(offset, [])
                    if seen not in known:
                        known.append(seen)
    return found


def differences(a: Mapping[Place, Log], b: Mapping[Place, Log]) -> Iterator[Difference]:
    for place in a.keys() | b.keys():
        left, right = a.get(place, {}), b.get(place, {})
        for offset in sorted(left.keys() | right.keys()):
            topic, partition = place
            at = f"{topic!s} {partition} at offset {offset}"
            for one, other in _unequal(left.get(offset, []), right.get(offset, [])):
                yield Difference(PATH, at, *_shown(one, other))


def _unequal(
    left: list[Stored | bytes], right: list[Stored | bytes]
) -> Iterator[tuple[Stored | bytes | None, Stored | bytes | None]]:
    """The batches of one side that the other side never gave, in pairs."""
    missed = [one for one in left if one not in right], [other for other in right if other not in left]
    for one, other in zip_longest(*missed):
        first, second = next(iter(left), None), next(iter(right), None)
        yield (first if one is None else one), (second if other is None else other)


def _stored(batch: bytes, bindings: Bindings) -> Stored | bytes:
    def word(producer_id: int) -> Any:
        return producer_id if producer_id < 0 else bindings.word(Bound.PRODUCER, producer_id)

    return stored(batch, word) or batch[OFFSET_AND_SIZE:]


def _shown(a: Stored | bytes | None, b: Stored | bytes | None) -> tuple[Any, Any]:
    """The fields in which two batches differ."""
    if isinstance(a, Stored) and isinstance(b, Stored):
        names = [name for name in Stored.__slots__ if getattr(a, name) != getattr(b, name)]
        return {name: getattr(a, name) for name in names}, {name: getattr(b, name) for name in names}
    return MISSING if a is None else a, MISSING if b is None else b

"""Two certificates of one move, compared: the one of then, and what the clusters have now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mesh.rpc import topic_moves


def changes(then: topic_moves.TopicMoveCertificate, now: topic_moves.TopicMoveCertificate) -> Iterator[str]:
    """The differences from the certificate of then, where both are about the same offsets."""
    known: Mapping[int, topic_moves.TopicMoveEvidence] = {each.partition: each for each in then.partitions}
    for each in now.partitions:
        before = known.get(each.partition)
        if before is None or before.start != each.start:
            continue
        for side in ("source", "target"):
            was, is_now = getattr(before, side), getattr(each, side)
            if (before.by_record, before.opened) != (each.by_record, each.opened):
                # checksums over other things: the numbers of records still count
                was = topic_moves.TopicMoveLog(records=was.records, crc=is_now.crc)
            if each.HasField(side) and was != is_now:
                yield (
                    f"partition {each.partition} of the {side} has changed since the certificate: {was.records} "
                    f"records with CRC {was.crc:08x} then, and {is_now.records} with {is_now.crc:08x} now"
                )

"""A certificate of a move is compared with the clusters as they are now."""

from __future__ import annotations

import pytest

from mesh.rpc import topic_moves
from services.control.domain.topic_moves.certificates import changes

Certificate = topic_moves.TopicMoveCertificate


def certificate(records: int = 9, crc: int = 1, start: int = 0, *, by_record: bool = True) -> Certificate:
    log = topic_moves.TopicMoveLog(records=records, crc=crc)
    proof = topic_moves.TopicMoveEvidence(partition=0, start=start, end=9, source=log, target=log, by_record=by_record)
    return Certificate(confirmed=True, partitions=[proof])


@pytest.mark.parametrize("now", [certificate(), certificate(8, 2, start=1)])
def test_the_same_records_and_records_from_another_offset_on_are_no_change(now: Certificate) -> None:
    assert not list(changes(certificate(), now))


@pytest.mark.parametrize("now", [certificate(8), certificate(crc=2)])
def test_other_records_are_a_change_on_each_side(now: Certificate) -> None:
    source, target = changes(certificate(), now)
    assert "of the source has changed since the certificate: 9 records with CRC 00000001 then" in source
    assert "of the target" in target


def test_checksums_over_batches_are_not_compared_with_those_over_records() -> None:
    then = certificate(crc=7, by_record=False)
    assert not list(changes(then, certificate()))
    assert list(changes(then, certificate(8)))

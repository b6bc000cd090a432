"""The job `archive` against a real cluster: nothing lost, nothing doubled, nothing skipped in silence.

A run takes seconds, so each of these tests is a story of several things that a run has to get right.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from services.pipeline import job_reports
from services.pipeline.job_reports import JobReport
from services.pipeline.session import our_sentence
from tests.integration.pipeline.orchard import Orchard

if TYPE_CHECKING:
    from tests.integration.pipeline.archives import Archive

pytestmark = pytest.mark.timeout(400)


def test_each_committed_record_stands_there_once_whatever_happens_between_runs(
    archive: Archive, orchard: Orchard, unique_name: Callable[[str], str]
) -> None:
    apples, pears = orchard.create(), orchard.create(unique_name("pears"))
    orchard.transaction(20).abort_transaction()
    orchard.grow(210)
    orchard.grow(60, topic=pears)
    still_open = orchard.transaction(10, partition=0)
    orchard.grow(20, partitions=(1, 2))
    first = archive.run(apples, pears, max_batch_rows=150)
    assert archive.records() == orchard.records, "all but what is not committed"
    assert (first.records, first.batches) == (290, 3)

    orchard.commit(still_open)
    orchard.add_partitions(5)
    orchard.grow(50, partitions=range(5))
    second = archive.run(apples, pears)
    assert archive.records() == orchard.records, "partitions that were added from their beginning"
    assert (second.records, second.batches) == (60, 1)

    archive.forget_last_commit()
    orchard.grow(30)  # belongs to the next batch, not to the one that is written again
    archive.run(apples, pears)
    assert archive.records() == orchard.records, "a batch that was cut off after its write"


def test_what_is_gone_or_another_is_an_error_and_no_record_is_touched(archive: Archive, orchard: Orchard) -> None:
    def refused() -> str:
        before = archive.records()
        with pytest.raises(Exception, match=orchard.topic) as failure:
            archive.run(orchard.topic)
        assert archive.records() == before
        return our_sentence(failure.value) or ""

    assert refused().endswith("no rule routes it, or its cluster does not have it")

    orchard.create(partitions=1)
    orchard.grow(10, partitions=(0,))
    archive.run(orchard.topic)
    orchard.grow(10, partitions=(0,))
    orchard.let_retention_take(partition=0, before=13)
    assert refused().startswith(
        f"{orchard.topic}/0 begins at offset 13, the checkpoint stands at 10: retention took 3 offsets"
    )
    archive.run(orchard.topic, accept_loss=True)
    kept = {place: each for place, each in orchard.records.items() if place.offset not in range(10, 13)}
    assert archive.records() == kept

    archive.forget_last_commit()
    orchard.let_retention_take(partition=0, before=15)
    assert refused().startswith(f"{orchard.topic}/0 does not hold offset 13 any more")
    orchard.grow(10, partitions=(0,))
    archive.run(orchard.topic, accept_loss=True)
    kept = {place: each for place, each in orchard.records.items() if place.offset not in range(10, 13)}
    assert archive.records() == kept, "what a batch had written before it was cut off stays, also where Kafka lacks it"

    shutil.rmtree(archive.folder / "_checkpoint")
    with pytest.raises(Exception, match="holds days but no _checkpoint"):
        archive.run(orchard.topic)
    assert archive.records() == kept


@pytest.mark.goes_on
def test_what_was_stopped_goes_on_compacts_beside_what_comes_and_refuses_a_topic_that_is_created_again(
    archive: Archive, orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.pipeline.archives.compaction import CompactionRules

    told: list[JobReport] = []
    monkeypatch.setattr(job_reports, "tell", told.append)
    orchard.create()
    orchard.grow(300)
    assert archive.run_until(lambda: True, orchard.topic, every=None).is_cut_short
    grown = False

    def holds_all() -> bool:
        nonlocal grown
        try:
            found = archive.records()
        except OSError:
            return False  # what it has listed was compacted meanwhile
        if len(found) < len(orchard.records):
            return False
        if not grown:
            orchard.grow(30)
            grown = True
            return False
        return len(list(archive.folder.glob("_compaction/*/*/plan.json"))) == 2

    all_is_finished = CompactionRules(after=timedelta(days=-1))
    written = archive.run_until(holds_all, orchard.topic, rules=all_is_finished)
    assert written.days_compacted >= 2
    assert {each.job for each in told} == {"archive"}, "serve takes what says nothing for one that hangs"
    before = archive.records()
    assert before == orchard.records

    orchard.delete()
    orchard.create()
    orchard.grow(400)
    with pytest.raises(Exception, match="it was created again"):
        archive.run(orchard.topic)
    assert archive.records() == before

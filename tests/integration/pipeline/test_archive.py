"""The job `archive` against a real cluster: nothing lost, nothing doubled, nothing skipped in silence.

A run takes seconds, so each of these tests is a story of several things that a run has to get right.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from services.pipeline.driver_protocol import job_reports
from services.pipeline.driver_protocol.acceptances import Acceptance, Acceptances, Answer, answer_of_line
from services.pipeline.driver_protocol.job_reports import JobReport
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.orchard import Orchard, Place
from tests.integration.pipeline.toolchain import sparks_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.integration.pipeline.archives import Archive

pytestmark = pytest.mark.timeout(400)

WITHIN_S = 120.0


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


def test_a_topic_that_lost_records_is_set_apart_until_its_loss_is_accepted_and_the_others_are_archived(
    archive: Archive, orchard: Orchard, unique_name: Callable[[str], str]
) -> None:
    apples, pears = orchard.topic, orchard.create(unique_name("pears"), partitions=1)
    orchard.grow(5, topic=pears, partitions=(0,))
    absent = archive.run(apples, pears)
    assert absent.apart[apples].endswith("no rule routes it, or its cluster does not have it")
    assert archive.records() == orchard.records

    orchard.create(partitions=1)
    orchard.grow(10, partitions=(0,))
    archive.run(apples, pears)
    orchard.grow(10, partitions=(0,))
    orchard.grow(5, topic=pears, partitions=(0,))
    orchard.let_retention_take(partition=0, before=13)
    lost = archive.run(apples, pears)
    assert lost.apart[apples].startswith(
        f"{apples}/0 begins at offset 13, the checkpoint stands at 10: retention took 3 offsets"
    )
    waits = {place for place in orchard.records if place.topic == apples and place.offset >= 10}
    assert archive.records().keys() == orchard.records.keys() - waits
    assert not archive.run(apples, pears, accept_loss_of=(apples,)).apart
    kept = {place: each for place, each in orchard.records.items() if place not in {*gone(apples, 10, 13)}}
    assert archive.records() == kept

    archive.forget_last_commit()
    orchard.let_retention_take(partition=0, before=15)
    orchard.grow(10, partitions=(0,))
    assert not archive.run(apples, pears).apart, "what an earlier attempt has written is there, also if Kafka lacks it"
    kept = {place: each for place, each in orchard.records.items() if place not in {*gone(apples, 10, 13)}}
    assert archive.records() == kept

    shutil.rmtree(archive.folder / "_checkpoint")
    with pytest.raises(Exception, match="holds days but no _checkpoint"):
        archive.run(apples, pears)
    assert archive.records() == kept


@pytest.mark.goes_on
def test_an_operators_word_lets_a_topic_go_on_at_once_and_is_good_for_that_loss_alone(
    archive: Archive, orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Answer | None] = []
    told = [JobReport("archive")]  # the last is as `serve` shows it: some reports leave out what is set apart
    monkeypatch.setattr(job_reports, "say", lambda line: said.append(answer_of_line(line.encode())))
    monkeypatch.setattr(job_reports, "tell", lambda report: told.append(report.with_what_stays_of(told[-1])))
    orchard.create(partitions=1)
    orchard.grow(10, partitions=(0,))
    archive.run(orchard.topic)
    orchard.grow(10, partitions=(0,))
    orchard.let_retention_take(partition=0, before=13)
    acceptances = Acceptances()

    def is_apart() -> bool:
        return list(told[-1].lost) == [orchard.topic]

    def is_answered() -> bool:
        if not said and is_apart() and not acceptances.has_news:
            acceptances.take(Acceptance("orders/1", orchard.topic, math.inf))
        return bool(said)

    hour = timedelta(hours=1)
    archive.run_until(is_answered, orchard.topic, every=hour, acceptances=acceptances)
    text = f"goes on without what retention took: {orchard.topic}/0 offsets 10 to 12"
    assert said == [Answer("orders/1", True, text)]
    kept = {place: each for place, each in orchard.records.items() if place not in {*gone(orchard.topic, 10, 13)}}
    assert archive.records() == kept
    assert told[-1].apart == {}

    orchard.grow(10, partitions=(0,))
    orchard.let_retention_take(partition=0, before=25)
    archive.run_until(is_apart, orchard.topic, every=hour, acceptances=acceptances)
    assert archive.records() == kept, "a later loss needs another word"


def gone(topic: str, first: int, end: int) -> list[Place]:
    return [Place(topic, 0, offset) for offset in range(first, end)]


@pytest.mark.parametrize("grown", [30, 600], ids=["shorter", "longer"])
def test_a_topic_that_is_created_again_goes_on_as_a_new_generation_and_its_uncommitted_batch_is_not_read_of_it(
    archive: Archive, orchard: Orchard, unique_name: Callable[[str], str], grown: int
) -> None:
    from services.pipeline.archives.compaction import CompactionRules

    apples, pears = orchard.create(), orchard.create(unique_name("pears"), partitions=1)
    orchard.grow(300)
    archive.run(apples, pears)
    orchard.grow(60)
    orchard.grow(20, topic=pears, partitions=(0,))
    archive.run(apples, pears)
    archive.forget_last_commit()
    for file in archive.folder.glob("day=*/batch=1"):
        shutil.rmtree(file)  # as if it had been killed before the write
    before = orchard.create_again()
    before = {place: each for place, each in before.items() if place.offset < 100}
    orchard.grow(grown)
    orchard.grow(20, topic=pears, partitions=(0,))
    assert not archive.run(apples, pears).apart
    of_pears = {place: each for place, each in orchard.records.items() if place.topic == pears}
    assert archive.records(generation=0) == before | of_pears
    of_apples = {place: each for place, each in orchard.records.items() if place.topic == apples}
    assert archive.records(generation=1) == of_apples
    assert archive.records_by_the_reader() == orchard.records, "copies read the topic that is there now"

    archive.run(apples, pears, rules=CompactionRules(after=timedelta(days=-1)))
    assert archive.records(generation=0) == before | of_pears
    assert archive.records(generation=1) == of_apples
    assert archive.records_by_the_reader() == orchard.records


@pytest.mark.goes_on
def test_what_was_stopped_goes_on_and_compacts_beside_what_comes(
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


def test_a_batch_that_hangs_is_told_and_a_second_run_of_the_folder_ends_the_first(
    archive: Archive, orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.pipeline.archives import job as module
    from services.pipeline.spark import hang_watch

    told: list[JobReport] = []
    monkeypatch.setattr(job_reports, "tell", told.append)
    monkeypatch.setattr(hang_watch, "EVERY_S", 0.2)
    orchard.create()
    orchard.grow(30)

    def hangs() -> bool:
        return bool(told) and told[-1].stuck_s > 2.0

    def freezing(*arguments: Any) -> DataFrame:
        """A batch whose workers stand still from when it is to be read."""
        for process in sparks_python():
            process.suspend()
            then.callback(process.resume)
        return by_day(*arguments)

    def goes_on() -> bool:
        if not hangs():
            return False
        monkeypatch.setattr(module, "by_day", by_day)
        then.close()
        wait_until(lambda: archive.records() == orchard.records, "the batch goes on", WITHIN_S)
        archive.run(orchard.topic)
        orchard.grow(30)
        return False

    by_day = module.by_day
    monkeypatch.setattr(module, "by_day", freezing)
    with ExitStack() as then, pytest.raises(Exception, match="one driver at a time writes a folder"):
        archive.run_until(goes_on, orchard.topic)
    archive.run(orchard.topic)
    assert archive.records() == orchard.records

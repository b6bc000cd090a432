"""The job `archive` against a real cluster: nothing lost, nothing doubled, nothing skipped in silence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from services.pipeline.session import our_sentence
from tests.integration.pipeline.orchard import Orchard

if TYPE_CHECKING:
    from tests.integration.pipeline.archives import Archive


def test_each_record_stands_there_once_after_many_batches_and_two_runs(
    archive: Archive, orchard: Orchard, unique_name: Callable[[str], str]
) -> None:
    apples, pears = orchard.create(), orchard.create(unique_name("pears"))
    orchard.grow(300)
    orchard.grow(60, topic=pears)
    first = archive.run(apples, pears, max_batch_rows=150)
    assert archive.records() == orchard.records
    assert (first.records, first.batches) == (360, 3)

    orchard.grow(100)
    second = archive.run(apples, pears)
    assert archive.records() == orchard.records
    assert (second.records, second.batches) == (100, 1)


def test_a_batch_that_was_cut_off_after_its_write_is_there_once(archive: Archive, orchard: Orchard) -> None:
    orchard.create()
    orchard.grow(90)
    archive.run(orchard.topic)
    orchard.grow(90)
    archive.run(orchard.topic)
    archive.forget_last_commit()
    orchard.grow(30)  # belongs to the next batch, not to the one that is written again
    archive.run(orchard.topic)
    assert archive.records() == orchard.records


def test_partitions_that_are_added_are_read_from_their_beginning(archive: Archive, orchard: Orchard) -> None:
    orchard.create(partitions=1)
    orchard.grow(10, partitions=(0,))
    archive.run(orchard.topic)
    orchard.add_partitions(3)
    orchard.grow(30)
    archive.run(orchard.topic)
    assert archive.records() == orchard.records


def test_only_committed_records_are_archived_and_an_open_transaction_holds_nothing_else_up(
    archive: Archive, orchard: Orchard
) -> None:
    orchard.create()
    orchard.transaction(20).abort_transaction()
    orchard.grow(30)
    still_open = orchard.transaction(10, partition=0)
    orchard.grow(20, partitions=(1, 2))
    archive.run(orchard.topic)
    assert archive.records() == orchard.records

    orchard.commit(still_open)
    archive.run(orchard.topic)
    assert archive.records() == orchard.records


def test_retention_that_passed_the_checkpoint_is_an_error_until_it_is_accepted(
    archive: Archive, orchard: Orchard
) -> None:
    orchard.create(partitions=1)
    orchard.grow(10, partitions=(0,))
    archive.run(orchard.topic)
    before = archive.records()
    orchard.grow(10, partitions=(0,))
    orchard.let_retention_take(partition=0, before=13)

    with pytest.raises(Exception, match="retention took 3 offsets") as failure:
        archive.run(orchard.topic)
    assert (our_sentence(failure.value) or "").startswith(
        f"{orchard.topic}/0 begins at offset 13, the checkpoint stands at 10"
    )
    assert archive.records() == before

    archive.run(orchard.topic, accept_loss=True)
    assert archive.records() == {
        place: each for place, each in orchard.records.items() if place.offset not in range(10, 13)
    }


def test_a_planned_batch_whose_records_are_gone_is_an_error(archive: Archive, orchard: Orchard) -> None:
    orchard.create(partitions=1)
    orchard.grow(10, partitions=(0,))
    archive.run(orchard.topic)
    archive.forget_last_commit()
    orchard.let_retention_take(partition=0, before=5)
    with pytest.raises(Exception, match="does not hold offset 0 any more") as failure:
        archive.run(orchard.topic)
    assert (our_sentence(failure.value) or "").startswith(f"{orchard.topic}/0 does not hold offset 0")


def test_a_topic_that_was_created_again_is_refused(archive: Archive, orchard: Orchard) -> None:
    orchard.create()
    orchard.grow(30)
    archive.run(orchard.topic)
    before = archive.records()
    orchard.delete()
    orchard.create()
    orchard.grow(60)
    with pytest.raises(Exception, match="it was created again"):
        archive.run(orchard.topic)
    assert archive.records() == before


def test_an_unknown_topic_is_named(archive: Archive, orchard: Orchard) -> None:
    with pytest.raises(Exception, match=f"topic {orchard.topic} is unknown") as failure:
        archive.run(orchard.topic)
    assert (our_sentence(failure.value) or "").endswith("no rule routes it, or its cluster does not have it")


def test_data_without_their_checkpoint_are_refused(archive: Archive, orchard: Orchard) -> None:
    orchard.create()
    orchard.grow(30)
    archive.run(orchard.topic)
    shutil.rmtree(archive.folder / "_checkpoint")
    with pytest.raises(Exception, match="holds days but no _checkpoint"):
        archive.run(orchard.topic)
    assert archive.records() == orchard.records


def test_a_run_that_is_told_to_stop_says_that_it_is_not_done(archive: Archive, orchard: Orchard) -> None:
    orchard.create()
    orchard.grow(300)
    written = archive.run_until(lambda: True, orchard.topic, every=None)
    assert written.is_cut_short

    archive.run(orchard.topic)
    assert archive.records() == orchard.records


def test_the_continuous_form_takes_what_comes_until_it_is_told_to_stop(archive: Archive, orchard: Orchard) -> None:
    orchard.create()
    orchard.grow(30)
    grown = False

    def holds_all() -> bool:
        nonlocal grown
        if len(archive.records()) < len(orchard.records):
            return False
        if not grown:
            orchard.grow(30)
            grown = True
            return False
        return True

    archive.run_until(holds_all, orchard.topic)
    archive.run(orchard.topic)
    assert archive.records() == orchard.records

"""What can be a job, how fast it may go, how it is kept, and how many there are; without Kafka."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from services.sidecar.consuming.positions import AtOffset, AtTime
from services.sidecar.delivering.batch import Settlement
from services.sidecar.jobs import jobs as jobs_module
from services.sidecar.jobs.job import (
    Filter,
    Job,
    JobSpec,
    JobState,
    PartitionProgress,
    Range,
    RefusedError,
    ToBackend,
    ToTopic,
    check,
)
from services.sidecar.jobs.job_store import decoded, encoded
from services.sidecar.jobs.jobs import Jobs, TooManyJobsError
from services.sidecar.jobs.messages import job_of, replay_message
from services.sidecar.jobs.original_command import command_record, job_spec
from services.sidecar.jobs.pace import Pace
from services.sidecar.jobs.run import JobTools
from services.sidecar.records import Partition, RawRecord
from services.sidecar.state.state_file import StateFile

EXTENSION = ".dlq"


def spec(*ranges: Range, **facts: Any) -> JobSpec:
    return JobSpec(**{"ranges": ranges or (Range("orders"),), "destination": ToBackend(), **facts})


def letter(reason: bytes = b"retries", key: bytes | None = b"k", offset: int = 0) -> RawRecord:
    return RawRecord("orders.dlq", 0, offset, 0, key, b"", [("dlq.reason", reason)])


# what can be a job


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (spec(ranges=()), "name at least one topic"),
        (spec(Range("")), "topic name can not be empty"),
        (spec(Range("orders", -1)), "partition can not be negative"),
        (spec(Range("orders", start=AtOffset(5))), "replay start offset is one of a partition: name the partition"),
        (spec(Range("orders", 0, AtOffset(5), AtOffset(4))), "replay end offset can not be less than start offset"),
        (spec(Range("orders", 0, AtTime(5), AtTime(5))), "replay end time can not be equal to start time"),
        (spec(Range("orders"), Range("orders", 1)), "orders is named twice"),
        (spec(Range("orders", 1), Range("orders", 1)), "orders is named twice"),
        (spec(rate=-1.0), "rate can not be negative"),
        (spec(filter=Filter(offsets=frozenset({1}))), "offsets are chosen of one partition"),
        (spec(destination=ToTopic()), "only dead letters know where they came from"),
        (spec(Range("strange")), "provided topic in request must match one of the topics in consuming topic list"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(asked: JobSpec, sentence: str) -> None:
    with pytest.raises(RefusedError, match=f"^{sentence}"):
        check(asked, serves=lambda topic: topic == "orders")


def test_a_range_may_mix_offsets_and_times_and_partitions_may_each_have_their_own() -> None:
    check(spec(Range("orders", 0, AtOffset(9), AtTime(5)), Range("orders", 1)), serves=lambda _: True)


@pytest.mark.parametrize(
    ("chosen", "takes"),
    [
        (Filter(), [0, 1, 2]),
        (Filter(reasons=frozenset({"backend"})), [1]),
        (Filter(keys=frozenset({b"k"})), [0, 1]),
        (Filter(keys=frozenset({b"k"}), offsets=frozenset({1, 2})), [1]),
    ],
)
def test_a_filter_takes_what_fits_all_of_it(chosen: Filter, takes: list[int]) -> None:
    records = [letter(), letter(b"backend", offset=1), letter(key=None, offset=2)]
    assert [one.offset for one in records if chosen.takes(one)] == takes


# how fast


def test_a_pace_lets_so_many_go_and_says_when_the_next_one_may() -> None:
    pace = Pace(10.0, now=0.0)
    assert (pace.take(5, now=0.0), pace.take(5, now=0.0)) == (1, 0)
    assert pace.pause(now=0.0) == pytest.approx(0.1)
    assert pace.take(5, now=0.1) == 1
    assert pace.take(5, now=100.0) == 1  # what was not used is not saved up


def test_a_fast_pace_lets_a_tenth_of_a_second_go_at_once() -> None:
    pace = Pace(1_000.0, now=0.0)
    assert pace.take(500, now=10.0) == 100


def test_no_pace_is_no_bound() -> None:
    assert (Pace(0.0, now=0.0).take(500, now=0.0), Pace(0.0, now=0.0).pause(now=0.0)) == (500, 0.0)


# how it is kept


JOB = Job(
    "j1",
    JobSpec(
        (Range("orders", 1, AtOffset(5), AtTime(9)), Range("bills")),
        ToBackend("/again", last_retry=True),
        "g",
        12.5,
        dead_letters=True,
        filter=Filter(frozenset({"retries"}), frozenset({b"k"}), frozenset({7})),
    ),
    created=1_700_000_000_123,
    state=JobState.FAILED,
    partitions={
        Partition("orders.dlq", 1): PartitionProgress(Partition("orders.dlq", 1), 5, 9, 7, 2, 1),
        Partition("bills.dlq", 0): PartitionProgress(Partition("bills.dlq", 0), 0, 9, 0, planned=0),
    },
    description="because",
    ended=1_700_000_000_456,
)


@pytest.mark.parametrize("destination", [JOB.spec.destination, ToTopic(), ToTopic("target")])
def test_a_job_is_the_same_after_a_message_and_after_a_file(destination: ToBackend | ToTopic) -> None:
    job = Job("j2", JobSpec(JOB.spec.ranges, destination, "g"), created=1)
    for one in (JOB, job):
        assert job_of(replay_message(one, "s1"), by_control=False) == one
        assert decoded(encoded([one])) == [one]


def test_a_file_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not the jobs of a sidecar"):
        decoded(b'{"version": 1}')
    with pytest.raises(ValueError, match="its version is 2, this release knows 1"):
        decoded(b'{"version": 2, "jobs": []}')


# the original's command


def test_the_originals_command_is_one_range() -> None:
    command = {
        "topicName": "orders", "dlqIndicator": True, "partition": 2, "startOffset": 10, "endOffset": 25,
        "consumerGroup": "orders-replay", "timeout": 0, "streamingApp": False, "destinationTopic": None,
        "lastRetry": True,
    }  # fmt: skip
    found = job_spec(command, EXTENSION)
    assert found.ranges == (Range("orders", 2, AtOffset(10), AtOffset(25)),)
    assert (found.group, found.dead_letters, found.destination) == ("orders-replay", True, ToBackend(last_retry=True))
    key, value = command_record(command, EXTENSION)
    assert (key, value["topicName"], "destinationTopic" in value) == ("orders.dlq", "orders.dlq", False)
    assert found.topic_of(job_spec(value, EXTENSION).ranges[0], EXTENSION) == "orders.dlq"


@pytest.mark.parametrize(("name", "number"), [("partition", 2**31), ("endOffset", 2**63), ("startOffset", -(2**70))])
def test_a_command_with_a_number_that_kafka_does_not_have_is_refused(name: str, number: int) -> None:
    command = {"topicName": "orders", "partition": 0, "startOffset": 0, "endOffset": 5, "consumerGroup": "g"}
    with pytest.raises(RefusedError):
        job_spec(command | {name: number}, EXTENSION)


# how many


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> JobTools:
    """Jobs that never come to an end."""

    class Endless:
        def __init__(self, job: Job, tools: JobTools, changed: Callable[[], None]) -> None:
            pass

        async def carry_out(self) -> str:
            await asyncio.Event().wait()
            return ""

        def close(self) -> None:
            pass

    monkeypatch.setattr(jobs_module, "JobRun", Endless)

    async def send(topic: str, records: list[Any]) -> list[Any]:
        return []

    sending: Callable[[str, list[Any]], Awaitable[list[Any]]] = send

    async def deliver(records: Sequence[RawRecord], path: str, occasion: str) -> Settlement:
        raise AssertionError("no job of these tests delivers")

    return JobTools({}, lambda _: {}, sending, deliver, EXTENSION, dead_letters=True)


async def test_jobs_are_bounded(tools: JobTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "MAX_OPEN", 3)
    jobs = Jobs(tools, lambda _: True, max_running=2)
    for _ in range(3):
        await jobs.start(spec())
    with pytest.raises(TooManyJobsError, match="3 jobs run or wait already"):
        await jobs.start(spec())
    await asyncio.sleep(0)
    assert sorted(one.state.value for one in jobs) == ["pending", "running", "running"]
    oldest = list(jobs)[-1]
    assert (await jobs.cancel(oldest.id)) is oldest
    assert oldest.state is JobState.CANCELLED
    await jobs.start(spec())
    await jobs.close()


async def test_two_jobs_do_not_share_a_group(tools: JobTools) -> None:
    jobs = Jobs(tools, lambda _: True, max_running=2)
    first = await jobs.start(spec(group="g"))
    with pytest.raises(RefusedError, match=f"group g keeps how far job {first.id} is"):
        await jobs.start(spec(group="g"))
    await jobs.close()


async def test_the_next_process_has_the_jobs_of_the_one_before(tools: JobTools, tmp_path: Path) -> None:
    file = StateFile(tmp_path / "replays.json")
    first = Jobs(tools, lambda _: True, max_running=1, file=file)
    job = await first.start(spec())
    first.take(Job("control's", spec(), 0, by_control=True))
    await first.close()
    second = Jobs(tools, lambda _: True, max_running=1, file=file)
    await second.restore()
    await asyncio.sleep(0)
    assert [(one.id, one.state) for one in second] == [(job.id, JobState.RUNNING)]
    await second.close()


async def test_what_control_gave_is_held_while_it_is_away_and_goes_on_when_it_is_given_again(tools: JobTools) -> None:
    jobs = Jobs(tools, lambda _: True, max_running=1)
    mine = await jobs.start(spec())
    given = jobs.take(Job("given", spec(), 0, by_control=True))
    await jobs.cancel(mine.id)
    await asyncio.sleep(0)
    assert given.state is JobState.RUNNING
    await jobs.hold()
    assert (given.state, given.description) == (JobState.PENDING, "waits for control")
    jobs.take(Job("given", spec(), 0, by_control=True))
    await asyncio.sleep(0)
    assert given.state is JobState.RUNNING
    await jobs.close()


async def test_what_cannot_be_a_job_here_ends_at_once(tools: JobTools) -> None:
    jobs = Jobs(tools, lambda _: False, max_running=1)
    refused = jobs.take(Job("given", spec(), 0, by_control=True))
    assert refused.state is JobState.FAILED
    assert "the backend gets no records of orders" in refused.description

"""Strays are found by comparison of two real logs, and written to their place once, whoever writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from mesh.routing import UpstreamCluster
from mesh.rpc import fail_backs
from mesh.topic_logs.batches import MINTED, Writer, written_by
from mesh.topic_logs.brokers import Brokers, CopySetbackError
from mesh.topic_logs.pace import Pace
from mesh.topic_logs.records import closed
from services.control.decisions.fail_backs.reconciling import Reconciling
from services.control.decisions.fail_backs.strays import CLUSTER, OFFSET, PARTITION, Comparison, Found
from services.control.upstream.connections import Connections
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.record_rules import FIRST_TIME, WITHIN_S, Copy, Side, ends, two_sides

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COPIED = 20
"""Records of partition 0 on both sides."""
MANY = 300


class StoppedError(Exception):
    """Control is no more."""


@pytest.fixture(scope="module")
def sides(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Iterator[tuple[Side, Side]]:
    with two_sides(kafka_c1, kafka_c2) as both:
        yield both


@pytest.fixture
def topic(sides: tuple[Side, Side], unique_name: Callable[[str], str]) -> str:
    """On both sides, with the same records at the beginning."""
    name = unique_name("strays")
    for side in sides:
        side.create(name)
        side.write(name, [(0, b"%d" % index) for index in range(COPIED)])
    return name


def transaction(side: Side, topic: str, number: int, *, commit: bool) -> None:
    producer = side.producer(**{"transactional.id": f"{topic}-{commit}"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    for index in range(number):
        producer.produce(topic, b"%s-%d" % (b"kept" if commit else b"aborted", index), b"k", 0, timestamp=FIRST_TIME)
    producer.flush(WITHIN_S)
    (producer.commit_transaction if commit else producer.abort_transaction)(WITHIN_S)


def end_of(side: Side, topic: str) -> int:
    return ends(side, topic, isolation="read_uncommitted")[topic, 0]


def order_of(sides: tuple[Side, Side], topic: str, place: str) -> fail_backs.FailBackTopic:
    """The part of the log to compare is all that there is now."""
    c1, c2 = sides
    partition = fail_backs.FailBackPartition(
        copied_end=COPIED, start=COPIED, end=end_of(c1, topic), clients_end=end_of(c2, topic),
        strays_start=end_of(c2, place),
    )  # fmt: skip
    return fail_backs.FailBackTopic(
        topic=topic, cluster_topic=topic, clients_topic=topic, strays_topic=place, partitions=[partition]
    )


async def look(
    sides: tuple[Side, Side], order: fail_backs.FailBackTopic, check: Callable[[], None], pace: int = 0
) -> Found:
    c1, c2 = sides
    async with Brokers(c1.spec, "look") as here, Brokers(c2.spec, "look") as there:
        await here.partitions(order.cluster_topic)
        await there.partitions(order.clients_topic)
        found = Comparison(
            here=here, there=there, topic=order, producer=order.topic, failed_over_ms=FIRST_TIME,
            with_headers=order.strays_topic != order.clients_topic, pace=Pace(pace), check=check,
        )  # fmt: skip
        await found.run()
    return found.found[0]


def looked(
    sides: tuple[Side, Side], order: fail_backs.FailBackTopic, check: Callable[[], None] = lambda: None, pace: int = 0
) -> Found:
    return asyncio.run(look(sides, order, check, pace))


def bare(record: Copy) -> tuple[object, ...]:
    """Key, value, own headers and time."""
    own = tuple(each for each in record.headers if not each[0].startswith("mesh.stray."))
    return record.key, record.value, own, record.timestamp


def test_strays_of_each_codec_get_headers_that_say_their_place_and_stay_as_they_are(
    sides: tuple[Side, Side], topic: str
) -> None:
    c1, c2 = sides
    for codec in CODECS:
        c1.write(topic, [(0, b"x" * index) for index in range(50)] + [(0, None)], **{"compression.type": codec})
    transaction(c1, topic, 3, commit=True)
    transaction(c1, topic, 5, commit=False)
    c2.write(topic, [(0, b"newer")] * 10)
    place = c2.create(f"{topic}.strays")
    found = looked(sides, order_of(sides, topic, place))
    wanted = [each for each in c1.read(topic) if each.offset >= COPIED]
    strays = c2.read(place)
    assert (found.strays, found.resent, found.is_prefix) == (len(wanted), 0, False)
    assert [bare(each) for each in strays] == [bare(each) for each in wanted]
    assert b"aborted-0" not in {each.value for each in strays}
    said = [dict(each.headers) for each in strays]
    assert [each[OFFSET] for each in said] == [b"%d" % each.offset for each in wanted]
    assert {(each[PARTITION], each[CLUSTER]) for each in said} == {(b"0", c1.name.encode())}
    assert len(c2.read(topic)) == COPIED + 10


@pytest.mark.parametrize("is_appended", [True, False])
def test_looks_that_are_broken_off_again_and_again_write_each_stray_once(
    sides: tuple[Side, Side], topic: str, is_appended: bool
) -> None:
    c1, c2 = sides
    c1.write(topic, [(0, b"stray-%d" % index) for index in range(MANY)])
    place = topic if is_appended else c2.create(f"{topic}.strays")
    order = order_of(sides, topic, place)
    stops = 0
    while True:
        left = 3  # the first check is that of the partition

        def check() -> None:
            nonlocal left
            left -= 1
            if not left:
                raise StoppedError

        try:
            found = looked(sides, order, check, pace=20_000)
        except StoppedError:
            stops += 1
            c2.write(topic, [(0, b"live-%d" % stops)])  # clients go on
        else:
            break
    values = [each.value for each in c2.read(place) if each.value and each.value.startswith(b"stray-")]
    assert stops > 2
    assert values == [b"stray-%d" % index for index in range(MANY)]
    assert found.strays == MANY


async def test_a_control_that_was_replaced_writes_no_stray_any_more(sides: tuple[Side, Side], topic: str) -> None:
    c1, c2 = sides
    c1.write(topic, [(0, b"stray-%d" % index) for index in range(MANY)])
    order = order_of(sides, topic, topic)
    checks, replaced = 0, asyncio.Event()

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks > 3:
            replaced.set()

    slow = asyncio.create_task(look(sides, order, check, pace=2_000))
    await asyncio.wait_for(replaced.wait(), WITHIN_S)
    assert (await look(sides, order, lambda: None)).strays == MANY
    with pytest.raises(CopySetbackError, match="can't be written"):
        await slow
    values = [each.value for each in c2.read(topic) if each.value and each.value.startswith(b"stray-")]
    assert values == [b"stray-%d" % index for index in range(MANY)]


def test_a_batch_that_its_producer_sent_again_is_no_stray(sides: tuple[Side, Side], topic: str) -> None:
    async def write() -> None:
        for side, producer_id, batches in ((c1, 77, (0, 1, 2)), (c2, 88, (2, 3))):
            async with Brokers(side.spec, "test") as brokers:
                await brokers.partitions(topic)
                for number in batches:
                    batch = closed([(FIRST_TIME + number, b"\x01\x04v%d\x00" % number)] * 2)
                    await brokers.produce(topic, 0, written_by(Writer(producer_id, 0, 2 * number), batch))

    c1, c2 = sides
    asyncio.run(write())
    found = looked(sides, order_of(sides, topic, topic))
    assert (found.strays, found.resent, found.is_prefix) == (4, 2, False)
    assert [each.value for each in c2.read(topic)][COPIED:] == [b"v2", b"v2", b"v3", b"v3", b"v0", b"v0", b"v1", b"v1"]


def test_a_log_with_which_the_other_one_begins_has_no_strays(sides: tuple[Side, Side], topic: str) -> None:
    c1, c2 = sides
    more: list[tuple[int, bytes | None]] = [(0, b"copied back")] * 5
    for side in sides:
        side.write(topic, more)
    c2.write(topic, [(0, b"newer")] * 5)
    found = looked(sides, order_of(sides, topic, topic))
    assert (found.strays, found.resent, found.is_prefix) == (0, 0, True)
    c1.write(topic, [(0, b"only here")])
    found = looked(sides, order_of(sides, topic, topic))
    assert (found.strays, found.is_prefix) == (1, False)


async def test_markers_of_a_fail_over_hide_no_stray(sides: tuple[Side, Side], topic: str) -> None:
    """Each attempt of a fail-over wrote a marker to the copy, and took the end behind the one before for the copy's."""
    c1, c2 = sides
    c1.write(topic, [(0, b"stray")] * 5)
    writer = Writer(MINTED, 1, 0)
    async with Brokers(c2.spec, "test") as brokers:
        await brokers.partitions(topic)
        for _ in range(3):
            await brokers.mark(topic, 0, writer, 1)
            writer = writer.anew()
    c2.write(topic, [(0, b"newer")] * 5)
    partition = fail_backs.FailBackPartition(copied_end=COPIED + 2)
    order = fail_backs.FailBackTopic(topic=topic, cluster_topic=topic, clients_topic=topic, partitions=[partition])
    clusters = tuple(UpstreamCluster(each.name, (each.bootstrap,), ordinal=n) for n, each in enumerate(sides, 1))
    async with Brokers(c1.spec, "test") as here, Brokers(c2.spec, "test") as there:
        reconciling = Reconciling(here, there, Connections(), (clusters[0], clusters[1]), Pace(), lambda: None)
        [part] = (await reconciling.planned(fail_backs.FailBack(), order)).partitions
        assert (part.start, part.end, part.clients_end) == (COPIED, COPIED + 5, COPIED + 8)
        [part] = (await reconciling.step(fail_backs.FailBack(), order)).partitions
        assert part.start == COPIED

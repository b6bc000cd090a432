"""Batches that break a rule of validation: what their client is told, and what goes on all the same."""

from __future__ import annotations

import pytest

from mesh.compression import Codec
from mesh.validation import Compression, Key, Mode, Policy, Rule
from services.gateway.requests.auditing.invalid import InvalidBatch
from services.gateway.requests.conversions import NotConverted
from services.gateway.requests.plan import Close, RawResponse, Unreachable
from services.gateway.requests.records import opened_batches, produce
from services.gateway.requests.records.produce_order import MAYBE_WRITTEN
from services.gateway.wire.errors import ErrorCode
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records.test_produce import VERSION, errors, play, raw, request, sent
from tests.unit.gateway.requests.test_auditing import packed
from tests.unit.gateway.wire.records import batch

ZSTD = Rule("zstd", "apples", compression_types=(Compression.ZSTD,))


def world_with(*rules: Rule) -> tuple[World, list[InvalidBatch]]:
    world, told = World({"c1": ["apples", "pears"]}, partitions=2), list[InvalidBatch]()
    world.memory.validation = Policy(rules)
    world.memory.on_invalid = told.append
    return world, told


def test_a_bad_batch_is_refused_with_the_reason_and_the_good_ones_beside_it_go_on() -> None:
    world, told = world_with(ZSTD)
    good = bytes(batch(attributes=Compression.ZSTD))
    book = play(world, request(("apples", 0, batch(count=3)), ("apples", 1, good), ("pears", 0, batch())))
    (call,) = book.asked()
    assert sent(call) == [("apples", 1, good), ("pears", 0, bytes(batch()))]
    book.answered(raw(("apples", 1, 0), ("pears", 0, 0)))
    assert errors(book) == [("apples", 0, ErrorCode.INVALID_RECORD), ("apples", 1, 0), ("pears", 0, 0)]
    refused = book.answer.responses[0].partition_responses[0]
    reason = "compression.type is none, and has to be zstd (rule 'zstd' of the mesh)"
    assert (refused.error_message, refused.base_offset, refused.record_errors) == (reason, -1, [])
    assert [(each.topic, each.partition, each.records, each.enforced) for each in told] == [("apples", 0, 3, True)]
    assert str(told[0]).endswith(f"may not write such a batch, because {reason}")


def test_a_request_of_bad_batches_alone_is_answered_at_once() -> None:
    world, _ = world_with(ZSTD)
    book = play(world, request(("apples", 0, batch())))
    assert errors(book) == [("apples", 0, ErrorCode.INVALID_RECORD)]


def test_conditions_have_the_errors_that_brokers_give() -> None:
    world, _ = world_with(
        Rule("a", "apples", max_message_bytes=10), Rule("b", "pears", message_timestamp_after_max_ms=5)
    )
    late = batch(timestamp=world.time_ms + 6)
    book = play(world, request(("apples", 0, batch()), ("pears", 0, late)))
    assert errors(book) == [("apples", 0, ErrorCode.MESSAGE_TOO_LARGE), ("pears", 0, ErrorCode.INVALID_TIMESTAMP)]


def test_without_the_acks_that_a_rule_asks_for_nothing_is_stored() -> None:
    world, _ = world_with(Rule("safe", "", is_prefix=True, acks_all=True))
    book = play(world, request(("apples", 0, batch()), acks=1))
    assert errors(book) == [("apples", 0, ErrorCode.INVALID_REQUIRED_ACKS)]
    assert isinstance(play(world, request(("apples", 0, batch()), acks=0)).answer, Close)


def test_a_rule_that_observes_lets_the_batch_pass_untouched() -> None:
    world, told = world_with(Rule("zstd", "apples", mode=Mode.OBSERVE, compression_types=(Compression.ZSTD,)))
    book = play(world, request(("apples", 0, batch())))
    book.answered(raw(("apples", 0, 0)))
    assert isinstance(book.answer, RawResponse)
    assert [each.enforced for each in told] == [False]


def test_a_refused_batch_is_not_waited_for() -> None:
    """Its producer does not send it again: the next batch goes to the broker, as after a refusal by the broker."""
    world, _ = world_with(ZSTD)
    play(world, request(("apples", 0, batch(producer_id=7, epoch=0, sequence=0))))
    book = play(world, request(("apples", 0, batch(producer_id=7, epoch=0, sequence=1, attributes=Compression.ZSTD))))
    assert len(book.asked()) == 1


def test_a_batch_that_was_waited_for_and_is_refused_now_holds_nobody_up() -> None:
    world, _ = world_with()
    first = request(("apples", 0, batch(producer_id=7, epoch=0, sequence=0)))
    play(world, first).answered(Unreachable("c1", "gone", never_sent=True))
    world.memory.validation = Policy([ZSTD])
    assert errors(play(world, first)) == [("apples", 0, ErrorCode.INVALID_RECORD)]
    assert not world.memory.refusals.any(world.now)


def test_a_batch_that_may_be_stored_is_sent_again_whatever_the_rules_say_now() -> None:
    world, told = world_with()
    lost = request(("apples", 0, batch(producer_id=7, epoch=0, sequence=0)))
    book = play(world, lost)
    book.answered(Unreachable("c1", "gone"))
    assert errors(book) == [("apples", 0, MAYBE_WRITTEN)]
    world.memory.validation = Policy([ZSTD])
    again = play(world, lost)
    again.answered(raw(("apples", 0, 0)))
    assert not told


def test_bytes_that_are_no_batch_and_several_batches_are_for_the_broker_to_refuse() -> None:
    world, told = world_with(ZSTD)
    book = play(world, request(("apples", 0, b"nonsense"), ("apples", 1, batch() + batch())))
    book.answered(raw(("apples", 0, 2), ("apples", 1, 87)))
    assert errors(book) == [("apples", 0, 2), ("apples", 1, 87)]
    assert not told


KEYED = Rule("keyed", "apples", key=Key.REQUIRED)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD, Codec.GZIP])
def test_records_are_opened_and_the_answer_names_those_that_break_the_rule(codec: Codec) -> None:
    world, reported = world_with(KEYED)
    bad = packed((b"k", []), (None, []), (None, []), codec=codec)
    good = packed((b"k", []), codec=codec)
    book = play(world, request(("apples", 0, bad), ("apples", 1, good)))
    (call,) = book.asked()
    assert sent(call) == [("apples", 1, good)]
    book.answered(raw(("apples", 1, 0)))
    assert errors(book) == [("apples", 0, ErrorCode.INVALID_RECORD), ("apples", 1, 0)]
    refused = book.answer.responses[0].partition_responses[0]
    reason = "the record has no key, and a key is required (rule 'keyed' of the mesh)"
    assert [(e.batch_index, e.batch_index_error_message) for e in refused.record_errors] == [(1, reason), (2, reason)]
    assert refused.error_message == f"record 1: {reason}"
    assert [each.breach.rule for each in reported] == [KEYED]


def test_more_than_may_come_out_of_a_batch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_batches, "MOST_DECOMPRESSED", 10_000)
    world, _ = world_with(KEYED)
    bomb = packed((bytes(1_000_000), []), codec=Codec.ZSTD)
    assert len(bomb) < 10_000
    book = play(world, request(("apples", 0, bomb)))
    assert errors(book) == [("apples", 0, ErrorCode.INVALID_RECORD)]
    assert "can't be read" in book.answer.responses[0].partition_responses[0].error_message


@pytest.mark.parametrize("producer_id", [-1, 7])
def test_records_that_nobody_has_time_to_open_come_again_in_their_order(producer_id: int) -> None:
    world, reported = world_with(KEYED)
    number = 0 if producer_id >= 0 else -1
    data = batch(producer_id=producer_id, epoch=number, sequence=number)
    late = Playbook(
        produce.handle,
        request(("apples", 0, data)),
        VERSION,
        world.view(),
        not_converted=NotConverted("no time"),
    )
    assert errors(late) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert world.memory.refusals.any(world.now) is (producer_id >= 0)
    assert not reported


def test_an_observed_rule_about_records_holds_nobody_up() -> None:
    world, reported = world_with(Rule("keyed", "apples", mode=Mode.OBSERVE, key=Key.REQUIRED))
    book = play(world, request(("apples", 0, packed((None, [])))))
    book.answered(raw(("apples", 0, 0)))
    assert [each.enforced for each in reported] == [False]

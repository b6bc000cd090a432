"""Share groups of protected topics: what a member gets, and what is released because it can't have it now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.protection.policy import Policy
from mesh.protection.rule import Others
from services.gateway.requests.groups import share_fetch
from services.gateway.requests.groups.share_revealing import MOST_BYTES, RELEASE
from services.gateway.requests.plan import Broker, Call, Gather, Unreachable
from services.gateway.requests.records import revealed_batches
from services.gateway.wire.batches import batches
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from services.gateway.wire.messages import share_fetch as fetch
from tests.unit.gateway.requests.groups.test_share_groups import led_by, partitions_in, real_id, wants
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records.test_protecting import (
    AWAY,
    CLEAR,
    GONE,
    RULE,
    House,
    one,
    sealed,
    values,
)


@pytest.fixture
def house() -> House:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    world.memory.group_homes.put("g", "c1", world.now)
    led_by(world, 1, 1)
    house = House(world)
    house.log_in("crm")
    return house


def at(offset: int, records: bytes) -> bytes:
    """One batch, as the log has it at this offset."""
    return offset.to_bytes(8, "big") + records[8:]


def gave(records: bytes, *acquired: tuple[int, int], partition: int = 0) -> ShareFetchResponse:
    ranges = [fetch.AcquiredRecords(first, last, 2) for first, last in acquired]
    data = fetch.PartitionData(partition, records=records, acquired_records=ranges)
    topics = [fetch.ShareFetchableTopicResponse(real_id("apples"), [data])]
    return ShareFetchResponse(acquisition_lock_timeout_ms=30_000, responses=topics)


def play(house: House, epoch: int = 0) -> Playbook:
    return Playbook(share_fetch.handle, wants(epoch, *([0] if epoch == 0 else [])), 2, house.world.view())


def acquired(data: fetch.PartitionData) -> list[tuple[int, int, int]]:
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]


def released(call: Call) -> list[tuple[int, int]]:
    message = call.message
    assert isinstance(message, ShareAcknowledgeRequest)
    assert (message.group_id, message.member_id, call.target) == ("g", "m", Broker(1))
    found = [batch for t in message.topics for p in t.partitions for batch in p.acknowledgement_batches]
    assert {tuple(batch.acknowledge_types) for batch in found} == {(RELEASE,)}
    return [(batch.first_offset, batch.last_offset) for batch in found]


def test_readers_get_clear_records_and_others_masks_with_the_same_offsets_and_delivery_counts(house: House) -> None:
    records = at(5, sealed(b"a", b"b")) + at(7, one(b"c"))
    for who, value in (("crm", CLEAR), ("eve", b"***")):
        house.log_in(who)
        book = play(house)
        assert [call.message.max_bytes for call in book.asked()] == [MOST_BYTES]  # type: ignore[union-attr]
        book.answered(gave(records, (5, 7)))
        data = partitions_in(book.answer)[0]
        assert values(bytes(data.records)) == [value] * 3
        assert [header.base_offset for header in batches(data.records, 0, len(data.records))] == [5, 7]
        assert acquired(data) == [(5, 7, 2)]


def test_records_whose_keys_are_away_are_released_and_the_member_hears_so_after_its_wait(house: House) -> None:
    house.keys.fault = AWAY
    book = play(house)
    book.answered(gave(at(5, sealed(b"a")), (5, 5)))
    (call,) = book.asked()
    assert released(call) == [(5, 5)]
    assert call.message.share_session_epoch == 1  # type: ignore[union-attr]
    book.answered(ShareAcknowledgeResponse())
    assert isinstance(book._command, Gather), "no client asks again at once"
    book.answered()
    data = partitions_in(book.answer)[0]
    assert (data.error_code, bytes(data.records), acquired(data)) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"", [])
    assert "no answer" in (data.error_message or "")
    assert [(each.reason, each.for_now) for each in house.told] == [("no answer", True)]


def test_while_the_keys_are_away_nothing_is_acquired_and_afterwards_all_is_read(house: House) -> None:
    house.keys.fault = AWAY
    first = play(house)
    first.answered(gave(at(5, sealed(b"a")), (5, 5)))
    first.answered(ShareAcknowledgeResponse())
    first.answered()
    leaving = play(house, 1)
    (call,) = leaving.asked()
    message = call.message
    assert isinstance(message, ShareFetchRequest)
    assert ([topic.partitions for topic in message.forgotten_topics_data], message.topics) == ([[0]], [])
    leaving.answered(ShareFetchResponse())
    idle = play(house, 2)
    assert isinstance(idle._command, Gather), "no broker is asked"
    idle.answered()
    for book in (leaving, idle):
        assert partitions_in(book.answer)[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    house.keys.fault = None
    again = play(house, 3)
    again.answered(gave(at(5, sealed(b"a")), (5, 5)))
    data = partitions_in(again.answer)[0]
    assert (values(bytes(data.records)), acquired(data)) == ([CLEAR], [(5, 5, 2)])


def test_what_comes_before_the_first_record_that_is_withheld_is_given_and_a_range_is_cut(house: House) -> None:
    house.keys.fault = AWAY
    clear, cut = at(5, one(b"a", b"b")), at(7, sealed(b"c"))
    book = play(house)
    book.answered(gave(clear + cut, (5, 7)))
    assert released(book.asked()[0]) == [(7, 7)]
    book.answered(ShareAcknowledgeResponse())
    data = partitions_in(book.answer)[0]
    assert (data.error_code, acquired(data), bytes(data.records)) == (0, [(5, 6, 2)], clear)


def test_what_is_too_much_to_be_revealed_at_once_is_released(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.requests.groups.share_revealing.ENOUGH_SHARED", 1)
    book = play(house)
    book.answered(gave(at(5, sealed(b"a")) + at(6, sealed(b"b")), (5, 5), (6, 6)))
    assert released(book.asked()[0]) == [(6, 6)]
    book.answered(ShareAcknowledgeResponse())
    data = partitions_in(book.answer)[0]
    assert (data.error_code, acquired(data), values(bytes(data.records))) == (0, [(5, 5, 2)], [CLEAR])
    assert revealed_batches.ENOUGH_SHARED > revealed_batches.ENOUGH_REVEALED


def test_a_record_that_can_never_be_decrypted_is_masked_or_refused_as_the_rule_says(house: House) -> None:
    house.keys.fault = GONE
    book = play(house)
    book.answered(gave(at(5, sealed(b"a")), (5, 5)))
    assert values(bytes(partitions_in(book.answer)[0].records)) == [b"***"]
    house.world.memory.protection = Policy([replace(RULE, others=Others.REFUSAL)])
    book = play(house)
    book.answered(gave(at(5, sealed(b"a")), (5, 5)))
    assert released(book.asked()[0]) == [(5, 5)]
    book.answered(Unreachable("c1", "gone"))
    book.answered()
    data = partitions_in(book.answer)[0]
    assert (data.error_code, acquired(data)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


def test_a_member_that_the_rule_refuses_acquires_nothing(house: House) -> None:
    house.world.memory.protection = Policy([replace(RULE, others=Others.REFUSAL)])
    house.log_in("eve")
    book = play(house)
    assert isinstance(book._command, Gather), "no broker is asked"
    book.answered()
    data = partitions_in(book.answer)[0]
    assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert house.keys.asked == [], "no key is asked for"

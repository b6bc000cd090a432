"""Plans of Produce and Fetch with rules of protection: what clusters get, what clients hear, and what is bounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from mesh.compression import Allowance, Codec
from mesh.protection.fields import Schemas
from mesh.protection.keys import DataKey, NoKey, Wrapped
from mesh.protection.policy import Policy
from mesh.protection.rule import Others, Rule
from services.gateway.authentication.principal import Principal
from services.gateway.requests.auditing.withheld import Withheld
from services.gateway.requests.conversions import NotConverted
from services.gateway.requests.data_keys import Found, Wanted
from services.gateway.requests.plan import Close, Gather, Unreachable, Verbatim
from services.gateway.requests.records import revealed_batches as revealed_module
from services.gateway.requests.records import revealing
from services.gateway.requests.records.fetch_routes import route_to as fetch_route
from services.gateway.requests.records.opened_batches import Written, opened_batches
from services.gateway.requests.records.produce import handle
from services.gateway.requests.records.produce_order import MAYBE_WRITTEN
from services.gateway.requests.records.produce_routes import route_to as produce_route
from services.gateway.requests.records.revealed_batches import Revealed, Stored, revealed_batches
from services.gateway.wire.batches import batches, crc_is_right
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import parse_request_header
from services.gateway.wire.record_bodies import read_body
from services.gateway.wire.record_editing import parts
from services.gateway.wire.scanner import scan_produce
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records import fetching
from tests.unit.gateway.requests.records.test_produce import VERSION, errors, play, raw, request, sent
from tests.unit.gateway.requests.test_auditing import packed
from tests.unit.gateway.wire.records import batch

RULE = Rule("all", "apples", key_id="k", readers=("User:crm", "Group:billing"))
KEY = DataKey(Wrapped("k", b"wrapped"), b"s" * 32)
AWAY, GONE = NoKey("no answer", is_gone=False), NoKey("key 'k' is gone", is_gone=True)
CLEAR = b"a payload"


@dataclass
class Keys:
    """A ring by hand."""

    fault: NoKey | None = None
    asked: list[Wanted] = field(default_factory=list)

    def find(self, wanted: Wanted, done: Callable[[Found], None]) -> None:
        self.asked.append(wanted)
        schemas: Schemas = {}
        writing = dict.fromkeys(wanted.writing, self.fault or KEY)
        done(Found(writing, dict.fromkeys(wanted.reading, self.fault or KEY.secret), schemas))


@dataclass
class House:
    """apples are protected, pears are not."""

    world: World = field(default_factory=lambda: World({"c1": ["apples", "pears"]}, partitions=2))
    keys: Keys = field(default_factory=Keys)
    told: list[Withheld] = field(default_factory=list)

    def __post_init__(self) -> None:
        memory = self.world.memory
        memory.protection, memory.data_keys, memory.on_withheld = Policy([RULE]), self.keys, self.told.append

    def log_in(self, name: str, *groups: str) -> None:
        self.world.session.prove(Principal(name, groups=groups))


def values(records: bytes) -> list[bytes | None]:
    found: list[bytes | None] = []
    for header in batches(records, 0, len(records)):
        assert crc_is_right(records, header)
        found += [part.value for part in parts(read_body(records, header, Allowance(10**6)), header.record_count)]
    return found


def one(*keys: bytes | None, codec: Codec = Codec.NONE) -> bytes:
    return packed(*((key, []) for key in keys or (b"k",)), codec=codec)


def numbered(sequence: int = 0) -> bytes:
    return bytes(batch(one()[61:], producer_id=7, epoch=0, sequence=sequence))


def sealed(*keys: bytes | None) -> bytes:
    """As the cluster has it."""
    results = opened_batches([Written("apples", one(*keys), protects=(RULE,))], Found({"k": KEY}))
    assert isinstance(results, list)
    assert results[0].records is not None
    return results[0].records


@pytest.mark.parametrize("codec", list(Codec))
def test_a_cluster_gets_protected_batches_and_all_others_as_they_came(codec: Codec) -> None:
    house = House()
    mine, other = one(b"a", b"b", codec=codec), one(b"c")
    book = play(house.world, request(("apples", 1, mine), ("pears", 0, other), ("apples", 0, other)))
    (call,) = book.asked()
    assert isinstance(call.message, Verbatim), "one leader: the new request passes as it is"
    frame = call.message.frame
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header = parse_request_header(frame, 4, len(frame))
    scan = scan_produce(frame, VERSION, header.body_offset, len(frame))
    got = {
        (t.name, p.partition): bytes(frame[p.records_start : p.records_end]) for t in scan.topics for p in t.partitions
    }
    assert got["pears", 0] == other
    for slot, count in ((("apples", 0), 1), (("apples", 1), 2)):
        assert CLEAR not in got[slot]
        assert values(revealed(got[slot], "User:crm")[0].records) == [CLEAR] * count
    (wanted,) = house.keys.asked
    assert wanted == Wanted(frozenset(["k"]))


def test_a_batch_keeps_its_header_its_keys_and_its_places() -> None:
    before = next(batches(one(b"a", None), 0, len(one(b"a", None))))
    records = sealed(b"a", None)
    (header,) = batches(records, 0, len(records))
    assert header == before._replace(length=header.length, crc=header.crc)
    (result,) = revealed(records, "User:crm")
    assert result.records == one(b"a", None), "the very batch"


def revealed(records: bytes, *who: str, rules: tuple[Rule, ...] = (RULE,)) -> list[Revealed]:
    found = revealed_batches([Stored("apples", rules, records)], who, {KEY.name: KEY.secret}, {})
    assert isinstance(found, list)
    return found


def test_while_keys_are_away_or_nobody_has_time_the_client_sends_again_and_nothing_is_sent_on() -> None:
    house = House(keys=Keys(AWAY))
    for records, error in ((one(), ErrorCode.NOT_LEADER_OR_FOLLOWER), (numbered(), ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        assert errors(play(house.world, request(("apples", 0, records)))) == [("apples", 0, error)]
    later = play(house.world, request(("apples", 0, numbered(1))))
    assert errors(later) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)], "in its order"
    assert {(each.is_write, each.for_now, each.reason) for each in house.told} == {(True, True, "no answer")}
    assert isinstance(play(house.world, request(("apples", 0, one()), acks=0)).answer, Close)
    busy = House()
    late = Playbook(
        handle, request(("apples", 0, one())), VERSION, busy.world.view(), not_converted=NotConverted("no time")
    )
    assert errors(late) == [("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    house.keys.fault = None
    assert len(play(house.world, request(("apples", 0, numbered()))).asked()) == 1


def test_a_key_that_is_gone_and_bytes_that_are_no_records_are_refused_and_the_rest_goes_on() -> None:
    house = House(keys=Keys(GONE))
    book = play(house.world, request(("apples", 0, one()), ("pears", 0, one())))
    assert sent(book.asked()[0]) == [("pears", 0, one())]
    book.answered(raw(("pears", 0, 0)))
    assert errors(book) == [("apples", 0, ErrorCode.INVALID_RECORD), ("pears", 0, 0)]
    assert book.answer.responses[0].partition_responses[0].error_message == "key 'k' is gone (rule 'all' of the mesh)"
    house = House()
    damaged = bytearray(one())
    damaged[-1] ^= 1
    marker = bytes(batch(one()[61:], attributes=0x20))
    book = play(house.world, request(("apples", 0, b"nonsense"), ("apples", 1, damaged)))
    assert errors(book) == [("apples", 0, ErrorCode.INVALID_RECORD), ("apples", 1, ErrorCode.INVALID_RECORD)]
    assert errors(play(house.world, request(("apples", 0, marker)))) == [("apples", 0, ErrorCode.INVALID_RECORD)]


def test_a_batch_that_may_be_stored_is_never_said_to_be_refused() -> None:
    house = House()
    lost = play(house.world, request(("apples", 0, numbered())))
    lost.answered(Unreachable("c1", "gone"))
    assert errors(lost) == [("apples", 0, MAYBE_WRITTEN)]
    house.keys.fault = GONE
    assert errors(play(house.world, request(("apples", 0, numbered())))) == [("apples", 0, MAYBE_WRITTEN)]


def test_topics_with_a_rule_have_no_direct_path() -> None:
    view = House().world.view()
    asked = (view.table, view.clusters, view.mesh_id, view.memory, view.now)
    assert produce_route("apples", *asked) is None
    assert fetch_route("apples", *asked) is None
    assert fetch_route("pears", *asked) is not None


def fetched(house: House, *topics: str) -> Playbook:
    return fetching.play(house.world, fetching.request(*topics))


def test_readers_get_clear_records_by_user_or_group_and_others_masks() -> None:
    records = sealed(b"a")
    for who, value in ((("crm",), CLEAR), (("eve", "billing"), CLEAR), (("eve",), b"***")):
        house = House()
        house.log_in(*who)
        book = fetched(house, "apples", "pears")
        book.answered(fetching.raw(fetching.data("apples", records), fetching.data("pears", one(b"p"))))
        (apples, pears) = fetching.seen(book)
        assert values(apples[2]) == [value]
        assert pears == ("pears", 0, one(b"p"))
    assert house.keys.asked == [Wanted()], "a mask needs no key"


def test_the_keys_that_a_topic_needed_last_are_asked_for_at_once() -> None:
    house = House()
    house.log_in("crm")
    records = sealed(b"a")
    for _ in range(2):
        fetched(house, "apples").answered(fetching.raw(fetching.data("apples", records)))
    name = Wanted(reading=frozenset([KEY.name]))
    assert house.keys.asked == [Wanted(), name, name]


def test_while_keys_are_away_a_reader_hears_so_after_its_wait_and_others_have_their_records() -> None:
    house = House(keys=Keys(AWAY))
    house.log_in("crm")
    book = fetched(house, "apples")
    book.answered(fetching.raw(fetching.data("apples", sealed(b"a"))))
    assert isinstance(book._command, Gather), "no client asks again at once"
    book.answered()
    assert fetching.seen(book) == [("apples", ErrorCode.UNKNOWN_SERVER_ERROR, b"")]
    assert [(each.reason, each.is_write, each.for_now) for each in house.told] == [("no answer", False, True)]
    both = fetched(house, "apples", "pears")
    both.answered(fetching.raw(fetching.data("apples", sealed(b"a")), fetching.data("pears", one(b"p"))))
    assert [(topic, error) for topic, error, _ in fetching.seen(both)] == [
        ("apples", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("pears", 0),
    ]


def test_a_client_that_is_refused_hears_so_without_a_question_to_a_cluster() -> None:
    house = House()
    house.world.memory.protection = Policy([replace(RULE, others=Others.REFUSAL)])
    book = fetched(house, "apples")
    book.answered()  # the wait
    assert fetching.seen(book) == [("apples", ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")]
    beside = fetched(house, "apples", "pears")
    (call,) = beside._command.calls  # type: ignore[union-attr]
    assert fetching.positions(call) == {"pears": 42}


def test_what_comes_before_the_first_batch_that_is_withheld_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    clear, marker = one(b"clear"), bytes(batch(b"marker", attributes=0x20))
    cut = sealed(b"a")[:-3]
    assert revealed(clear + marker + cut, "User:crm")[0].records == clear + marker, "markers stay, the cut batch goes"
    assert revealed(clear[:40], "User:crm") == [Revealed(b"")]
    damaged = bytearray(sealed(b"a"))
    damaged[-1] ^= 1
    (result,) = revealed(clear + damaged, "User:crm")
    assert (result.records, result.is_damaged) == (clear, True)
    (result,) = revealed(bytes(damaged), "User:eve")
    assert (result.records, result.is_damaged) == (b"", True), "nothing passes unseen"
    house = House()
    told = revealing.withheld_code(house.world.view(), "apples", 0, result)
    assert told == ErrorCode.CORRUPT_MESSAGE
    found = revealed_batches([Stored("apples", (RULE,), clear + sealed(b"a"))], ("User:crm",), {KEY.name: AWAY}, {})
    assert found == [Revealed(clear, "all", "no answer", for_now=True)]
    missing = revealed_batches([Stored("apples", (RULE,), sealed(b"a"))], ("User:crm",), {}, {})
    assert missing == frozenset([KEY.name])
    monkeypatch.setattr(revealed_module, "ENOUGH_REVEALED", 1)
    both = [Stored("apples", (RULE,), clear + clear), Stored("apples", (RULE,), clear)]
    assert revealed_batches(both, ("User:crm",), {}, {}) == [Revealed(clear), Revealed(b"")], "the client asks again"

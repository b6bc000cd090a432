"""However topics lie over clusters and brokers: splitting and merging lose nothing, invent nothing, double nothing.

A request about any items is played against a fleet of brokers, some of them silent. What all brokers were asked is what
the client asked, each item once and of who leads it. The answer names each item once, with what its own leader said of
it; items without one fail.
"""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.requests.plan import Outcome, Unreachable
from services.gateway.requests.table import HANDLERS
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ElectLeadersRequest,
    FetchRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    ProduceRequest,
)
from services.gateway.wire.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from services.gateway.wire.schema import Kind, Struct, message_of
from tests.fixtures.sweeps import REPEAT
from tests.unit.gateway.requests.playbook import Playbook
from tests.unit.gateway.roundtrip.fleet import (
    CODES,
    NO_RULE,
    NUMBERS,
    RESULTS,
    TOPICS,
    WHOLE_TOPIC,
    Fleet,
    Item,
    Said,
    items_of,
    message_about,
    number_of,
    read_answer,
    shape_of,
)
from tests.unit.gateway.wire.records import batch

CLUSTERS = ("c1", "c2", "c3")
BROKERS = (1, 2, 3)
PARTITIONS = 4


@dataclass(frozen=True)
class Splitting:
    """An API whose requests are divided."""

    api_key: int
    version: int
    by_leader: bool = False
    """Otherwise by the owner of each topic."""
    fails_whole: bool = False
    """A silent cluster fails the whole answer."""
    unknown_is_no_error: bool = False
    """Nothing is known of a topic that no rule matches, as of one that was never used."""


SPLITTINGS = (
    Splitting(ApiKey.PRODUCE, 9, by_leader=True),
    Splitting(ApiKey.PRODUCE, 3, by_leader=True),
    Splitting(ApiKey.PRODUCE, 13, by_leader=True),
    Splitting(ApiKey.FETCH, 12, by_leader=True),
    Splitting(ApiKey.FETCH, 4, by_leader=True),
    Splitting(ApiKey.FETCH, 13, by_leader=True),
    Splitting(ApiKey.LIST_OFFSETS, 7, by_leader=True),
    Splitting(ApiKey.LIST_OFFSETS, 1, by_leader=True),
    Splitting(ApiKey.DELETE_RECORDS, 2, by_leader=True),
    Splitting(ApiKey.DESCRIBE_PRODUCERS, 0, by_leader=True),
    Splitting(ApiKey.OFFSET_COMMIT, 8),
    Splitting(ApiKey.OFFSET_COMMIT, 2),
    Splitting(ApiKey.OFFSET_COMMIT, 10),
    Splitting(ApiKey.OFFSET_FETCH, 7, fails_whole=True, unknown_is_no_error=True),
    Splitting(ApiKey.OFFSET_DELETE, 0, fails_whole=True),
    Splitting(ApiKey.CREATE_TOPICS, 5),
    Splitting(ApiKey.DELETE_TOPICS, 5),
    Splitting(ApiKey.DELETE_TOPICS, 6),
    Splitting(ApiKey.CREATE_PARTITIONS, 2),
    Splitting(ApiKey.ELECT_LEADERS, 2),
    Splitting(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0),
)

leaders = st.lists(st.sampled_from([*BROKERS, None]), min_size=PARTITIONS, max_size=PARTITIONS)
layouts = st.fixed_dictionaries({topic: st.tuples(st.sampled_from(CLUSTERS), leaders) for topic in TOPICS})
silences = st.frozensets(st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(BROKERS)), max_size=3)
wanted_topics = st.lists(st.sampled_from([*TOPICS, NO_RULE]), unique=True, min_size=1)
wanted_items = st.lists(
    st.tuples(st.sampled_from([*TOPICS, NO_RULE]), st.integers(0, PARTITIONS - 1)), min_size=1, max_size=14, unique=True
)


@pytest.mark.parametrize("splitting", SPLITTINGS, ids=lambda found: f"{api_name(found.api_key)}-v{found.version}")
@given(layout=layouts, silent=silences, places=wanted_items)
@settings(max_examples=10 * REPEAT, deadline=None)
def test_nothing_is_lost_or_invented(
    splitting: Splitting,
    layout: dict[str, tuple[str, list[int | None]]],
    silent: frozenset[tuple[str, int]],
    places: list[tuple[str, int]],
) -> None:
    api_key, version = splitting.api_key, splitting.version
    request_class, answer_class = (_class(api_key, kind) for kind in (Kind.REQUEST, Kind.RESPONSE))
    has_partitions = shape_of(request_class, version).partitions is not None
    items = [Item(topic, partition if has_partitions else WHOLE_TOPIC) for topic, partition in places]
    about = [(item, _question(item)) for item in dict.fromkeys(items)]
    fleet = Fleet(layout, silent, splitting.by_leader)

    request = _completed(message_about(request_class, version, about, NUMBERS))
    asked = list(items_of(request, version, NUMBERS))
    book = Playbook(HANDLERS[api_key].handle_of(version), request, version, fleet.world().view())
    fleet.play(book, api_key)
    answer = read_answer(book.answer, answer_class, version)

    expected = {(*fleet.whom(item), item, said) for item, said in asked if fleet.answers(item)}
    assert len(fleet.asked) == len(set(fleet.asked)), "nothing is asked twice"
    failed: int = getattr(answer, "error_code", ErrorCode.NONE)
    if splitting.fails_whole and failed:
        assert silent, "no reason to fail"
        assert expected.issuperset(fleet.asked)
        return
    assert set(fleet.asked) == expected, "what the brokers were asked"

    told = list(items_of(answer, version, RESULTS))
    assert sorted(item for item, _ in told) == sorted(item for item, _ in asked), "what the client is told of"
    for item, said in told:
        if fleet.answers(item):
            assert said == fleet.seen(item, said), item
        else:
            assert said.error or (splitting.unknown_is_no_error and item.topic == NO_RULE), (
                f"nobody said this of {item}"
            )
            assert said.number in (None, -1, 0) and not said.records


@given(layout=layouts, silent=st.frozensets(st.sampled_from(CLUSTERS)), names=st.none() | wanted_topics)
@settings(max_examples=10 * REPEAT, deadline=None)
def test_metadata_names_each_topic_once_as_its_owner_does(
    layout: dict[str, tuple[str, list[int | None]]], silent: frozenset[str], names: list[str] | None
) -> None:
    """Clusters have copies of each other's topics: they count nowhere."""
    request = MetadataRequest(
        topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    world = Fleet(layout, frozenset(), by_leader=False).world()
    book = Playbook(HANDLERS[ApiKey.METADATA].handle, request, 9, world.view())
    asked: list[tuple[str, str]] = []
    while (calls := book.pending) is not None:
        outcomes: list[Outcome] = []
        for call in calls:
            assert isinstance(call.message, MetadataRequest)
            topics = TOPICS if call.message.topics is None else [topic.name or "" for topic in call.message.topics]
            asked += [(call.cluster, topic) for topic in topics]
            answer = MetadataResponse(topics=[_copy(call.cluster, topic) for topic in topics])
            outcomes.append(Unreachable(call.cluster, "silent") if call.cluster in silent else answer)
        book.answered(*outcomes)

    told = {topic.name: (topic.error_code, len(topic.partitions)) for topic in book.answer.topics}
    assert len(told) == len(book.answer.topics), "a topic is named twice"
    as_seen_last = (ErrorCode.NONE, PARTITIONS)
    if names is None:
        assert told == {t: as_seen_last if c in silent else _size(c, t) for t, (c, _) in layout.items()}
        return
    assert sorted(asked) == sorted((layout[name][0], name) for name in names if name != NO_RULE)
    assert told == {
        name: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        if name == NO_RULE
        else as_seen_last
        if layout[name][0] in silent
        else _size(layout[name][0], name)
        for name in names
    }


def _copy(cluster: str, topic: str) -> MetadataResponseTopic:
    code, partitions = _size(cluster, topic)
    return MetadataResponseTopic(code, topic, partitions=[MetadataResponsePartition(0, n) for n in range(partitions)])


def _size(cluster: str, topic: str) -> tuple[ErrorCode, int]:
    """A copy's error and number of partitions: none is like the others."""
    number = number_of(cluster, topic)
    return CODES[number % len(CODES)], number % 100


def _class(api_key: int, kind: Kind) -> type[Struct]:
    spec = message_of(api_key, kind)
    assert spec is not None
    return spec.cls


def _question(item: Item) -> Said:
    return Said(number_of("question", item), bytes(batch(repr(item).encode())))


def _completed(request: Struct) -> Struct:
    """With what is not about items."""
    match request:
        case ProduceRequest():
            request.acks, request.timeout_ms = -1, 30_000
        case FetchRequest():
            request.max_wait_ms, request.min_bytes, request.max_bytes = 500, 1, 1 << 30
            for topic in request.topics:
                for partition in topic.partitions:
                    partition.partition_max_bytes = 1 << 20
        case OffsetCommitRequest():
            request.generation_id_or_member_epoch = -1
        case ElectLeadersRequest():
            request.election_type = 1
    return request

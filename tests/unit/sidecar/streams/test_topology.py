"""What topologies do with records, operator by operator and together."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sidecar.records import RawRecord
from services.sidecar.streams import Format, Topology, TopologyError, Tumbling
from services.sidecar.streams.records import OperatorError, StreamRecord
from services.sidecar.streams.topology_test_driver import TopologyTestDriver

KEYS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(-1000, 1000)
RECORDS = st.lists(st.tuples(KEYS, NUMBERS))
EVENTS = st.lists(st.tuples(KEYS, st.integers(0, 100)))


def written(topology: Topology, records: list[tuple[str, int]], to: str = "out") -> list[tuple[object, object]]:
    driver = TopologyTestDriver(topology)
    for key, value in records:
        driver.write("in", key, value)
    return driver.read(to)


def test_filter_map_and_flat_map_do_as_python_does() -> None:
    topology = Topology("t")
    words = topology.stream("in").filter(lambda key, line: "#" not in line)
    words.flat_map(lambda key, line: [(word, 1) for word in line.split()]).map(
        lambda word, one: (word.upper(), one)
    ).to("out")
    driver = TopologyTestDriver(topology)
    driver.write("in", None, "to be or")
    driver.write("in", None, "# not")
    assert driver.read("out") == [("TO", 1), ("BE", 1), ("OR", 1)]


def test_a_record_takes_the_first_branch_that_wants_it() -> None:
    topology = Topology("t")
    large, even = topology.stream("in").branch(lambda _, n: n > 100, lambda _, n: n % 2 == 0)
    large.to("large")
    even.to("even")
    driver = TopologyTestDriver(topology)
    for number in (1, 2, 102):
        driver.write("in", "k", number)
    assert (driver.read("large"), driver.read("even")) == ([("k", 102)], [("k", 2)])


@given(RECORDS)
def test_totals_are_those_of_each_key(records: list[tuple[str, int]]) -> None:
    topology = Topology("t")
    totals = topology.stream("in").group().aggregate(int, lambda _, number, total: total + number, store="totals")
    totals.updates().to("out")
    expected = {key: sum(number for one, number in records if one == key) for key, _ in records}
    assert dict(written(topology, records)) == expected


@given(RECORDS)
def test_counting_by_another_key_goes_through_a_repartition(records: list[tuple[str, int]]) -> None:
    topology = Topology("t")
    parities = topology.stream("in").group(lambda _, number: "odd" if number % 2 else "even")
    parities.count(store="parities").updates().to("out")
    assert topology.plan("app").targets[0].topic == "parities-repartition"
    expected = Counter("odd" if number % 2 else "even" for _, number in records)
    assert dict(written(topology, records)) == expected


def test_an_aggregate_of_none_is_removed() -> None:
    topology = Topology("t")
    topology.stream("in").group().aggregate(lambda: None, lambda _, value, __: value, store="last")
    driver = TopologyTestDriver(topology)
    driver.write("in", "k", {"n": 1})
    assert driver.stored("last", "k") == {"n": 1}
    driver.write("in", "k", None)
    assert driver.stored("last", "k") is None


def test_a_stream_is_joined_with_what_the_table_has_by_then() -> None:
    topology = Topology("t")
    cities = topology.table("cities")
    orders = topology.stream("in")
    orders.join(cities, lambda order, city: f"{order} to {city}").to("sent")
    orders.join(cities, lambda order, city: city or "nowhere", left=True).to("known")
    driver = TopologyTestDriver(topology)
    driver.write("in", "alice", "apples")
    driver.write("cities", "alice", "Rome")
    driver.write("in", "alice", "pears")
    driver.write("cities", "alice", None)
    driver.write("in", "alice", "plums")
    assert driver.read("sent") == [("alice", "pears to Rome")]
    assert [value for _, value in driver.read("known")] == ["nowhere", "Rome", "nowhere"]


SIZE, GRACE = 10, 5


def per_window() -> Topology:
    topology = Topology("t")
    counted = topology.stream("in").group().windows(Tumbling(SIZE, GRACE)).count(store="counts")
    counted.updates().to("updates")
    counted.closed().to("closed")
    return topology


@given(EVENTS)
def test_windows_count_what_comes_in_time_and_close_once(events: list[tuple[str, int]]) -> None:
    driver = TopologyTestDriver(per_window())
    counted: Counter[tuple[int, str]] = Counter()
    now = -1
    for key, at in events:
        driver.write("in", key, None, timestamp=at)
        now = max(now, at)
        start = at - at % SIZE
        if start + SIZE + GRACE > now:
            counted[start, key] += 1
    closed = [(value["start"], key, value["value"]) for key, value in driver.read("closed")]
    assert closed == sorted(closed)
    assert closed == [
        (start, key, count) for (start, key), count in sorted(counted.items()) if start + SIZE + GRACE <= now
    ]
    still_open = {place: count for place, count in counted.items() if place[0] + SIZE + GRACE > now}
    assert {place: driver.stored("counts", place[1], place[0]) for place in still_open} == still_open


def test_a_window_is_seen_with_its_bounds() -> None:
    driver = TopologyTestDriver(per_window())
    driver.write("in", "k", None, timestamp=12)
    assert driver.read("updates") == [("k", {"start": 10, "end": 20, "value": 1})]
    driver.write("in", "k", None, timestamp=25)
    assert driver.read("closed") == [("k", {"start": 10, "end": 20, "value": 1})]


def test_event_time_may_stand_in_the_value() -> None:
    topology = Topology("t")
    events = topology.stream("in", time=lambda value: value["at"])
    events.group().windows(Tumbling(SIZE)).count(store="counts").updates().to("out")
    driver = TopologyTestDriver(topology)
    driver.write("in", "k", {"at": 31}, timestamp=99)
    assert driver.read("out")[0][1]["start"] == 30


@pytest.mark.parametrize(("at", "kind"), [("today", "str"), (1.5, "float"), (None, "NoneType"), (-1, "a negative")])
def test_event_time_that_is_none_is_the_records_failure(at: object, kind: str) -> None:
    topology = Topology("t")
    topology.stream("in", time=lambda value: value["at"]).to("out")
    with pytest.raises(OperatorError, match=f"in raised ValueError for in-0 offset 1: `time` gives {kind}"):
        TopologyTestDriver(topology).write("in", "k", {"at": at})


def test_the_backend_may_replace_split_and_drop() -> None:
    topology = Topology("t")
    topology.stream("in").backend("/check").map_values(lambda value: value * 10).to("out")
    driver = TopologyTestDriver(topology, lambda key, value: [(key, one) for one in range(value)])
    for number in (0, 1, 3):
        driver.write("in", "k", number)
    assert [value for _, value in driver.read("out")] == [0, 0, 10, 20]


@given(RECORDS, st.data())
def test_what_rounds_records_come_in_changes_nothing(records: list[tuple[str, int]], data: st.DataObject) -> None:
    def run(rounds: list[list[tuple[str, int]]]) -> tuple[object, object]:
        topology = Topology("t")
        numbers = topology.stream("in")
        numbers.group().aggregate(int, lambda _, number, total: total + number, store="sums").updates().to("out")
        numbers.group().windows(Tumbling(50)).count(store="windows").closed().to("closed")
        driver = TopologyTestDriver(topology)
        for one in rounds:
            driver.process("in", [record(key, number) for key, number in one])
        return driver.read("out"), driver.read("closed")

    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=4)))
    edges = [0, *cuts, len(records)]
    assert run([records[a:b] for a, b in itertools.pairwise(edges)]) == run([[one] for one in records])


def record(key: str, number: int) -> StreamRecord:
    return StreamRecord(key, number, abs(number), [], RawRecord("in", 0, 0, 0, None, None, []))


@given(st.lists(st.tuples(KEYS, st.integers(0, 3))))
def test_a_record_that_raises_leaves_no_trace(records: list[tuple[str, int]]) -> None:
    def refuse_zero(key: str, value: dict[str, int]) -> bool:
        return bool(1 / value["value"])

    topology = Topology("t")
    numbers = topology.stream("in")
    numbers.to("before")
    last = numbers.group().aggregate(int, lambda _, number, __: number, store="last")
    last.updates().map_values(lambda number: {"value": number}).filter(refuse_zero).to("out")
    driver = TopologyTestDriver(topology)
    good: dict[str, int] = {}
    for key, number in records:
        if number:
            driver.write("in", key, number)
            good[key] = number
        else:
            with pytest.raises(OperatorError, match=r"filter raised ZeroDivisionError for in-0 offset \d+"):
                driver.write("in", key, number)
    assert {key: driver.stored("last", key) for key in good} == good
    assert len(driver.read("before")) == len(driver.read("out")) == sum(1 for _, number in records if number)


def test_records_without_a_key_are_in_no_total() -> None:
    topology = Topology("t")
    topology.stream("in").group().count(store="counts").updates().to("out")
    assert written(topology, [(None, 1), ("k", 1)]) == [("k", 1)]  # type: ignore[list-item]


def joined_by_other_keys(topology: Topology) -> None:
    topology.stream("in").map(lambda key, value: (value, key)).join(topology.table("t"), lambda a, b: a)


def joined_by_other_formats(topology: Topology) -> None:
    topology.stream("in", key=Format.JSON).join(topology.table("t"), lambda a, b: a)


def joined_across_topologies(topology: Topology) -> None:
    topology.stream("in").join(Topology("other").table("t"), lambda a, b: a)


def one_store_twice(topology: Topology) -> None:
    for _ in range(2):
        topology.stream("in" if _ else "in2").group().count(store="counts")


def reads_what_it_writes(topology: Topology) -> None:
    topology.stream("in").to("in")


def reads_a_topic_twice(topology: Topology) -> None:
    topology.stream("in")
    topology.table("in")


def nothing(topology: Topology) -> None:
    pass


def avro_in_a_repartition(topology: Topology) -> None:
    topology.stream("in").repartition("r", lambda key, value: key, key=Format.AVRO)


@pytest.mark.parametrize(
    ("define", "words"),
    [
        (joined_by_other_keys, r"call repartition\(\) before join\(\)"),
        (joined_by_other_formats, "json keys and 't' has string keys"),
        (joined_across_topologies, "of another topology"),
        (one_store_twice, "two stores called 'counts'"),
        (reads_what_it_writes, "reads 'in' and writes it"),
        (reads_a_topic_twice, "reads 'in' twice"),
        (nothing, "reads nothing"),
        (avro_in_a_repartition, "take json"),
    ],
)
def test_what_cannot_run_is_refused_by_name(define: object, words: str) -> None:
    topology = Topology("t")
    with pytest.raises(TopologyError, match=words):
        define(topology)  # type: ignore[operator]
        topology.plan("app")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 101, ".a"])
def test_a_name_has_to_fit_topics_and_files(name: str) -> None:
    with pytest.raises(TopologyError, match="cannot be the name"):
        Topology(name)

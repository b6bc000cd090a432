"""Transactions over several clusters: all or nothing, whoever dies, and whenever."""

import pytest

from mesh.transactions import PART_TIMEOUT_MS
from services.gateway.requests.plan import Handle
from services.gateway.requests.transactions import end
from services.gateway.requests.transactions.log_reading import read_log
from services.gateway.requests.transactions.sweep import UNDONE_S, Undone, sweep
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import EndTxnRequest
from services.gateway.wire.schema import Struct
from tests.unit.gateway.requests.transactions.client import FIRST, SECOND, Client
from tests.unit.gateway.requests.transactions.simulated import Simulation

BOTH = pytest.mark.parametrize("protocol", [FIRST, SECOND])
MARKED = pytest.mark.parametrize("skips", [False, True], ids=["marked", "home skips the decision's marker"])
WHERE = [
    ("apples",),
    ("bananas",),
    ("apples", "bananas"),
    ("bananas", "cherries"),
    ("apples", "bananas", "cherries"),
]
"""Topics of one transaction: on home alone, on another cluster alone, on several."""
ALL = WHERE[-1]
LAST_CALL = 24
"""More calls than the end of a transaction makes."""


def begun(protocol: int = SECOND) -> tuple[Simulation, Client]:
    mesh = Simulation()
    client = Client(mesh, protocol)
    assert client.begin() == 0
    return mesh, client


def read(mesh: Simulation) -> dict[str, list[str]]:
    """What readers of committed records see, by topic."""
    seen: dict[str, list[str]] = {}
    for cluster in mesh.clusters.values():
        for topic, record in cluster.committed:
            seen.setdefault(topic, []).append(record.decode().strip())
    return seen


def written(client: Client, topics: tuple[str, ...], value: str) -> None:
    for topic in topics:
        assert client.write(topic, value.encode()) == 0


@BOTH
@pytest.mark.parametrize("topics", WHERE)
def test_what_is_committed_is_read_on_all_clusters_and_what_is_aborted_on_none(
    protocol: int, topics: tuple[str, ...]
) -> None:
    mesh, client = begun(protocol)
    for value, commit in (("one", True), ("two", False), ("three", True)):
        written(client, topics, value)
        assert client.end(commit=commit) == 0
    assert read(mesh) == {topic: ["one", "three"] for topic in topics}


@BOTH
@MARKED
@pytest.mark.parametrize("topics", WHERE)
def test_a_gateway_dies_in_a_commit_and_the_next_one_finishes_it(
    protocol: int, skips: bool, topics: tuple[str, ...]
) -> None:
    for calls in range(LAST_CALL):
        mesh, client = begun(protocol)
        mesh.clusters["c1"].skips_markers = skips
        assert client.transact(**dict.fromkeys(topics, b"before")) == 0
        written(client, topics, "value")
        mesh.calls, mesh.dies_after = 0, calls
        assert client.end() == 0, f"after {calls} calls"
        assert read(mesh) == {topic: ["before", "value"] for topic in topics}, f"after {calls} calls"
        assert client.transact(**dict.fromkeys(topics, b"after")) == 0
        assert read(mesh) == {topic: ["before", "value", "after"] for topic in topics}, f"after {calls} calls"


@BOTH
@MARKED
@pytest.mark.parametrize("topics", WHERE)
def test_a_gateway_and_its_client_die_in_a_commit_and_it_counts_on_all_clusters_or_on_none(
    protocol: int, skips: bool, topics: tuple[str, ...]
) -> None:
    outcomes = set()
    for calls in range(LAST_CALL):
        mesh, client = begun(protocol)
        mesh.clusters["c1"].skips_markers = skips
        written(client, topics, "value")
        mesh.calls, mesh.dies_after = 0, calls
        done = mesh.ask(*ending(client))
        mesh.restart()
        successor = Client(mesh, protocol)
        assert successor.begin() == 0
        seen = read(mesh)
        assert seen in ({}, {topic: ["value"] for topic in topics}), f"after {calls} calls"
        assert seen or done is None, "what the client was told of is there"
        outcomes.add(bool(seen))
        assert successor.transact(**dict.fromkeys(topics, b"next")) == 0
        assert all(values[-1:] == ["next"] and len(values) == 1 + bool(seen) for values in read(mesh).values())
    assert outcomes == {True, False}, "both happen"


def ending(client: Client) -> tuple[Handle, Struct, int]:
    version = 4 if client.protocol == FIRST else 5
    return end.handle, EndTxnRequest("tx", *client.identity, True), version


@BOTH
def test_a_gateway_dies_while_records_are_written_and_the_next_one_commits_them(protocol: int) -> None:
    topics = ("bananas", "apples", "cherries")
    for calls in range(3 * LAST_CALL):
        mesh, client = begun(protocol)
        mesh.calls, mesh.dies_after = 0, calls
        values = client.transact(**dict.fromkeys(topics, b"value"))
        assert values == 0, f"after {calls} calls"
        assert all(set(found) == {"value"} for found in read(mesh).values())
        assert read(mesh).keys() == set(topics)


@BOTH
def test_every_request_may_come_to_another_gateway(protocol: int) -> None:
    mesh, client = begun(protocol)
    for n in range(4):
        for topic in ("apples", "bananas", "cherries"):
            mesh.restart()
            assert client.write(topic, str(n).encode()) == 0
        mesh.restart()
        assert client.end(commit=n != 2) == 0
    assert read(mesh) == {topic: ["0", "1", "3"] for topic in ALL}


@BOTH
def test_a_part_that_its_broker_has_aborted_makes_the_whole_an_abort(protocol: int) -> None:
    for gateways in (1, 2):
        mesh, client = begun(protocol)
        written(client, ("apples", "bananas", "cherries"), "lost")
        mesh.clusters["c2"].time_out("tx")
        if gateways == 2:
            mesh.restart()
        assert client.end() == ErrorCode.TRANSACTION_ABORTABLE
        assert client.end(commit=False) == 0
        assert client.transact(apples=b"kept", bananas=b"kept") == 0
        assert read(mesh) == {"apples": ["kept"], "bananas": ["kept"]}


@BOTH
def test_a_part_that_was_aborted_and_goes_on_under_another_epoch_is_missed(protocol: int) -> None:
    mesh, client = begun(protocol)
    written(client, ("apples", "bananas"), "lost")
    mesh.clusters["c2"].time_out("tx")
    mesh.restart()
    written(client, ("bananas",), "too late")
    assert client.end() == ErrorCode.TRANSACTION_ABORTABLE
    assert client.end(commit=False) == 0
    assert read(mesh) == {}


@BOTH
def test_nothing_is_decided_when_a_part_has_no_time_left(protocol: int) -> None:
    mesh, client = begun(protocol)
    written(client, ("apples", "bananas"), "late")
    mesh.world.time_ms += PART_TIMEOUT_MS - 4_000
    assert client.end() == ErrorCode.TRANSACTION_ABORTABLE
    assert client.end(commit=False) == 0
    assert read(mesh) == {}


@BOTH
def test_a_commit_waits_for_a_cluster_that_is_away_and_has_a_part(protocol: int) -> None:
    mesh, client = begun(protocol)
    written(client, ("apples", "bananas"), "value")
    mesh.clusters["c2"].away = True
    assert client.end() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert read(mesh) == {}
    mesh.clusters["c2"].away = False
    assert client.end() == 0
    assert read(mesh) == {"apples": ["value"], "bananas": ["value"]}


@BOTH
def test_a_cluster_that_goes_away_after_the_decision_is_waited_for(protocol: int) -> None:
    mesh, client = begun(protocol)
    written(client, ("apples", "bananas", "cherries"), "value")
    home = mesh.clusters["c1"]

    def leave(_: object) -> None:
        mesh.clusters["c2"].away = mesh.clusters["c2"].away or ("apples", b"value   ") in home.committed

    mesh.on_call = leave
    assert client.end() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert read(mesh) == {"apples": ["value"], "cherries": ["value"]}
    mesh.on_call = None
    mesh.clusters["c2"].away = False
    mesh.restart()
    assert client.end() == 0
    assert read(mesh) == {topic: ["value"] for topic in ALL}


@BOTH
def test_a_cluster_without_a_part_is_not_asked(protocol: int) -> None:
    mesh, client = begun(protocol)
    mesh.clusters["c3"].away = True
    assert client.transact(apples=b"value", bananas=b"value") == 0


@BOTH
def test_a_producer_that_was_replaced_writes_nowhere_any_more(protocol: int) -> None:
    for gateways in (1, 2):
        mesh, old = begun(protocol)
        written(old, ("apples", "bananas"), "old")
        if gateways == 2:
            mesh.restart()
        new = Client(mesh, protocol)
        assert new.begin() == 0
        written(new, ("bananas",), "new")
        for topic in ("apples", "bananas", "cherries"):
            assert old.write(topic, b"zombie") != 0
        assert old.end() == ErrorCode.PRODUCER_FENCED
        assert new.end() == 0
        assert read(mesh) == {"bananas": ["new"]}


@BOTH
@pytest.mark.parametrize("restarted", [False, True])
def test_a_producer_that_could_not_be_fenced_on_a_cluster_is_before_anything_new_is_written_there(
    protocol: int, restarted: bool
) -> None:
    mesh, old = begun(protocol)
    written(old, ("apples", "bananas"), "old")
    remembers = mesh.world.memory
    mesh.clusters["c2"].away = True
    mesh.restart()
    new = Client(mesh, protocol)
    assert new.begin() == 0, "no cluster that is away keeps a producer from its home"
    mesh.clusters["c2"].away = False
    beginning = mesh.world.memory
    if restarted:
        mesh.restart()
    written(new, ("bananas",), "new")
    mesh.world.memory = remembers
    assert old.write("bananas", b"zombie") != 0
    mesh.world.memory = beginning
    assert new.end() == 0
    assert new.transact(bananas=b"next", apples=b"next") == 0
    assert read(mesh) == {"bananas": ["new", "next"], "apples": ["next"]}


@BOTH
def test_a_record_that_was_on_its_way_to_a_cluster_that_was_away_comes_too_late_for_a_replaced_producer(
    protocol: int,
) -> None:
    """Its gateway had told home of the part, and nothing of it was open yet when the successor began."""
    mesh, old = begun(protocol)
    assert old.transact(apples=b"old", bananas=b"old") == 0
    mesh.clusters["c2"].away = True
    assert old.write("bananas", b"on its way") != 0
    remembers = mesh.world.memory
    mesh.restart()
    new = Client(mesh, protocol)
    assert new.begin() == 0
    mesh.clusters["c2"].away = False
    mesh.restart()
    written(new, ("bananas",), "new")
    beginning, mesh.world.memory = mesh.world.memory, remembers
    assert old.write("bananas", b"zombie") != 0
    mesh.world.memory = beginning
    assert new.end() == 0
    assert read(mesh) == {"apples": ["old"], "bananas": ["old", "new"]}
    mesh.restart()
    assert new.transact(bananas=b"next") == 0, "it is fenced once, and not again"


def test_two_gateways_that_meet_an_id_on_a_cluster_at_once_do_not_lose_the_records_of_one() -> None:
    """Each has made an identity there; the second one has ended what was written under the first."""
    mesh, client = begun()
    written(client, ("bananas",), "under the first")
    there = mesh.clusters["c2"].ids["tx"]
    mesh.clusters["c2"].finish(there, committed=False)
    there.epoch += 1
    there.state = "Empty"
    mesh.restart()
    written(client, ("bananas", "apples"), "under the second")
    assert client.end() == ErrorCode.TRANSACTION_ABORTABLE
    assert client.end(commit=False) == 0
    assert read(mesh) == {}


@BOTH
@MARKED
def test_what_was_decided_is_finished_though_nobody_asks_again(protocol: int, skips: bool) -> None:
    outcomes = set()
    for calls in range(LAST_CALL):
        mesh, client = begun(protocol)
        mesh.clusters["c1"].skips_markers = skips
        written(client, ALL, "value")
        mesh.calls, mesh.dies_after = 0, calls
        mesh.ask(*ending(client))
        mesh.restart()
        undone: Undone = {}
        for _ in range(3):
            undone = mesh.play(sweep(undone, mesh.view()))
            mesh.world.now += UNDONE_S
        seen = read(mesh)
        assert seen in ({}, {topic: ["value"] for topic in ALL}), f"after {calls} calls"
        log = mesh.play(read_log("c1", mesh.view()))
        assert log.decisions == ()
        assert len(undone) == len(log.written)
        assert not undone or mesh.clusters["c1"].ids["tx"].state == "Ongoing", "home has not ended it"
        outcomes.add(bool(seen))
    assert outcomes == {True, False}, "both happen"


def half_committed() -> Simulation:
    """Its gateway has died between the commit at home and the other one."""
    for calls in range(LAST_CALL):
        mesh, client = begun(FIRST)
        written(client, ("apples", "bananas"), "value")
        mesh.calls, mesh.dies_after = 0, calls
        mesh.ask(*ending(client))
        mesh.restart()
        if read(mesh) == {"apples": ["value"]}:
            return mesh
    raise AssertionError("it never did")


def test_what_was_decided_is_only_taken_up_when_its_clusters_were_in_reach_all_along() -> None:
    mesh = half_committed()
    undone: Undone = {}
    for away, finished in ((True, False), (False, False), (True, False), (False, False), (False, True)):
        mesh.clusters["c2"].away = away
        undone = mesh.play(sweep(undone, mesh.view()))
        mesh.world.now += UNDONE_S
        assert ("bananas" in read(mesh)) is finished


def test_each_decision_of_one_producer_has_its_own_time_until_it_is_taken_up() -> None:
    """By the first protocol they have one identity, and so one key in the log."""
    mesh, client = begun(FIRST)
    undone: Undone = {}
    finished: list[bool] = []
    for value in ("one", "two"):
        written(client, ("apples", "bananas"), value)

        def look(_: object, value: str = value) -> None:
            nonlocal undone
            record = value.encode().ljust(8)
            half = ("apples", record) in mesh.clusters["c1"].committed
            if half and ("bananas", record) not in mesh.clusters["c2"].committed:
                mesh.on_call = None
                undone = mesh.play(sweep(undone, mesh.view()))
                finished.append(("bananas", record) in mesh.clusters["c2"].committed)

        mesh.on_call = look
        assert client.end() == 0
        mesh.world.now += UNDONE_S + 1
        mesh.world.time_ms += 5_000
    assert finished == [False, False], "its own gateway is about to do it, each time"


@BOTH
def test_an_old_decision_does_not_commit_what_is_written_later(protocol: int) -> None:
    """Its end was not noted: its gateway died right after the last commit."""
    mesh, client = begun(protocol)
    written(client, ("apples", "bananas"), "one")
    mesh.on_call = lambda call: setattr(mesh, "dies_after", _before_the_note(mesh, call))
    assert client.end() == 0
    mesh.on_call, mesh.dies_after = None, 1 << 30
    mesh.world.time_ms += 10
    written(client, ("apples", "bananas"), "two")
    mesh.restart()
    successor = Client(mesh, protocol)
    assert successor.begin() == 0
    assert read(mesh) == {"apples": ["one"], "bananas": ["one"]}


def _before_the_note(mesh: Simulation, call: object) -> int:
    done = ("bananas", b"one     ") in mesh.clusters["c2"].committed
    return mesh.calls if done else 1 << 30


def test_the_books_are_empty_when_all_is_done() -> None:
    mesh, client = begun()
    for _ in range(3):
        assert client.transact(apples=b"value", bananas=b"value") == 0
    mesh.restart()
    assert mesh.play(read_log("c1", mesh.view())).decisions == ()

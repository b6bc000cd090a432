"""Time-outs: home's ends the whole transaction, and a part on another cluster waits for the decision for 15 minutes."""

import pytest

from mesh.transactions import PART_TIMEOUT_MS
from services.gateway.requests.plan import Call
from services.gateway.requests.transactions.abandoned import Looked, abort_abandoned
from services.gateway.requests.transactions.log_reading import read_log
from services.gateway.requests.transactions.sweep import UNDONE_S, Undone, sweep
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import InitProducerIdRequest
from tests.unit.gateway.requests.transactions.client import FIRST, SECOND, Client
from tests.unit.gateway.requests.transactions.simulated import Simulation
from tests.unit.gateway.requests.transactions.test_atomic_transactions import (
    BOTH,
    begun,
    ending,
    half_committed,
    read,
    written,
)

CLIENTS_MS = 60_000
"""The client's time-out."""


def swept(mesh: Simulation) -> None:
    """Two sweeps: the first one only sees what is open."""
    looked: Looked = {}
    for _ in range(2):
        looked = mesh.play(abort_abandoned(looked, mesh.view()))


def open_on_c2(mesh: Simulation) -> bool:
    return mesh.clusters["c2"].ids["tx"].state == "Ongoing"


def test_a_cluster_that_is_away_for_longer_than_the_clients_time_still_commits_what_was_decided() -> None:
    mesh = half_committed()
    mesh.clusters["c2"].away = True
    mesh.pass_time(10 * CLIENTS_MS)
    mesh.clusters["c2"].away = False
    undone: Undone = {}
    for _ in range(2):
        swept(mesh)
        undone = mesh.play(sweep(undone, mesh.view()))
        mesh.world.now += UNDONE_S
    assert read(mesh) == {"apples": ["value"], "bananas": ["value"]}


def test_a_cluster_that_allows_less_gives_its_part_the_clients_time() -> None:
    mesh = Simulation()
    mesh.clusters["c2"].most_timeout_ms = 300_000
    client = Client(mesh)
    assert client.begin() == client.transact(apples=b"value", bananas=b"value") == 0
    assert [mesh.clusters[name].ids["tx"].timeout_ms for name in ("c1", "c2")] == [CLIENTS_MS, CLIENTS_MS]


def test_home_has_the_clients_time_and_other_clusters_have_theirs_whoever_takes_their_identity() -> None:
    mesh, client = begun()
    assert client.transact(apples=b"value", bananas=b"value") == 0
    for _ in range(2):
        mesh.restart()
        assert Client(mesh).begin() == 0
        assert [mesh.clusters[name].ids["tx"].timeout_ms for name in ("c1", "c2")] == [CLIENTS_MS, PART_TIMEOUT_MS]


@BOTH
def test_the_only_part_is_not_committed_when_home_has_no_time_left(protocol: int) -> None:
    mesh, client = begun(protocol)
    written(client, ("bananas",), "late")
    mesh.world.time_ms += CLIENTS_MS - 4_000
    assert client.end() == ErrorCode.TRANSACTION_ABORTABLE
    assert client.end(commit=False) == 0
    assert read(mesh) == {}


@BOTH
def test_nothing_is_decided_when_a_part_has_run_short_of_time_while_the_decision_was_written(protocol: int) -> None:
    mesh = Simulation()
    mesh.clusters["c2"].most_timeout_ms = 300_000
    client = Client(mesh, protocol)
    assert client.begin() == 0
    written(client, ("apples", "bananas"), "value")
    mesh.world.time_ms += CLIENTS_MS - 8_000

    def slow(call: Call) -> None:
        """Writing takes home 6 s and committing 3 s; its coordinator has not looked for late transactions since."""
        seconds = {ApiKey.PRODUCE: 6, ApiKey.END_TXN: 3}.get(ApiKey(call.key), 0) if call.cluster == "c1" else 0
        mesh.world.time_ms += 1000 * seconds
        mesh.world.now += seconds
        mesh.clusters["c2"].expire()

    mesh.on_call = slow
    assert client.end() == ErrorCode.TRANSACTION_ABORTABLE
    mesh.on_call = None
    assert client.end(commit=False) == 0
    assert read(mesh) == {}


@BOTH
def test_the_clock_of_home_does_not_matter_when_home_decides(protocol: int) -> None:
    mesh, client = begun(protocol)
    written(client, ("apples", "bananas"), "value")
    mesh.clusters["c1"].ids["tx"].started_ms -= 86_400_000
    assert client.end() == 0
    assert read(mesh) == {"apples": ["value"], "bananas": ["value"]}


@BOTH
@pytest.mark.parametrize("topics", [("bananas",), ("apples", "bananas")])
def test_a_part_whose_producer_is_gone_is_aborted_when_home_has_timed_out(
    protocol: int, topics: tuple[str, ...]
) -> None:
    mesh, client = begun(protocol)
    written(client, topics, "value")
    mesh.pass_time(CLIENTS_MS // 2)
    swept(mesh)
    assert open_on_c2(mesh), "home has not ended it"
    mesh.pass_time(CLIENTS_MS)
    mesh.restart()
    swept(mesh)
    assert not open_on_c2(mesh)
    assert client.write("bananas", b"late") == ErrorCode.INVALID_PRODUCER_EPOCH or protocol == FIRST
    assert Client(mesh, protocol).begin() == 0
    assert read(mesh) == {}


@BOTH
@pytest.mark.parametrize("skips", [False, True], ids=["marked", "home skips the decision's marker"])
def test_a_decision_that_home_has_timed_out_holds_nobody_and_its_parts_are_aborted(protocol: int, skips: bool) -> None:
    mesh, client = begun(protocol)
    mesh.clusters["c1"].skips_markers = skips
    written(client, ("apples", "bananas"), "value")
    mesh.on_call = lambda call: setattr(mesh, "dies_after", mesh.calls if call.key == ApiKey.PRODUCE else 1 << 30)
    mesh.ask(*ending(client))
    mesh.on_call = None
    mesh.restart()
    assert mesh.play(read_log("c1", mesh.view())).written
    mesh.pass_time(2 * CLIENTS_MS)
    undone: Undone = {}
    for _ in range(3):
        swept(mesh)
        undone = mesh.play(sweep(undone, mesh.view()))
        mesh.world.now += UNDONE_S
    swept(mesh)
    assert not undone and not mesh.play(read_log("c1", mesh.view())).written
    assert not open_on_c2(mesh)
    assert read(mesh) == {}


def test_one_sweep_alone_aborts_nothing() -> None:
    mesh, client = begun()
    written(client, ("bananas",), "value")
    mesh.pass_time(2 * CLIENTS_MS)
    mesh.play(abort_abandoned({}, mesh.view()))
    assert open_on_c2(mesh)


@pytest.mark.parametrize("away", ["c1", "c3"])
def test_no_part_is_aborted_while_a_cluster_that_may_have_decided_is_away(away: str) -> None:
    mesh, client = begun()
    written(client, ("bananas",), "value")
    mesh.pass_time(2 * CLIENTS_MS)
    mesh.clusters[away].away = True
    swept(mesh)
    assert open_on_c2(mesh)


def test_a_decided_part_is_not_aborted() -> None:
    mesh = half_committed()
    mesh.pass_time(2 * CLIENTS_MS)
    swept(mesh)
    assert open_on_c2(mesh)


@pytest.mark.parametrize("known_at_home", [True, False])
def test_a_transaction_of_a_client_that_goes_around_the_mesh_is_not_touched(known_at_home: bool) -> None:
    mesh = Simulation()
    clusters = ("c1", "c2") if known_at_home else ("c2",)
    for name in clusters:
        around = mesh.clusters[name]
        around._init(InitProducerIdRequest("tx", CLIENTS_MS * 5))
    around._open(around.ids["tx"], ("bananas", 0))
    mesh.pass_time(2 * CLIENTS_MS)
    swept(mesh)
    assert open_on_c2(mesh)


def test_a_part_of_another_mesh_on_a_shared_cluster_is_not_touched() -> None:
    """Its home is a cluster that this mesh does not have."""
    mesh = Simulation()
    shared = mesh.clusters["c2"]
    shared._init(InitProducerIdRequest("tx", PART_TIMEOUT_MS))
    shared._open(shared.ids["tx"], ("bananas", 0))
    mesh.pass_time(2 * CLIENTS_MS)
    swept(mesh)
    assert open_on_c2(mesh)


def test_a_producer_that_begins_while_the_sweep_looks_keeps_its_transaction() -> None:
    mesh, client = begun(SECOND)
    written(client, ("bananas",), "never")
    mesh.pass_time(2 * CLIENTS_MS)
    successor = Client(mesh)
    aborts: list[Call] = []

    def begins(call: Call) -> None:
        if isinstance(call.message, InitProducerIdRequest):
            mesh.on_call = None
            aborts.append(call)
            assert successor.begin() == 0
            assert successor.write("bananas", b"kept") == 0

    mesh.on_call = begins
    swept(mesh)
    assert aborts
    assert successor.end() == 0
    assert read(mesh) == {"bananas": ["kept"]}

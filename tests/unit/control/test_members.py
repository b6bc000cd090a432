"""Who is there, who is away, and who has said goodbye: told from what routers report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mesh.routing.codec import TABLE_FORMAT
from mesh.rpc import admin, discovery
from services.control.decisions.members.members import EXPIRY, KEPT, MAX_AWAY, Members
from services.control.domain.members.rollouts import Answer, Phase
from services.control.domain.members.usage import Unlisted

ROUTER = admin.Member(name="members/r1")


class Noon:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, time: timedelta) -> None:
        self.now += time


@pytest.fixture
def clock() -> Noon:
    return Noon()


@pytest.fixture
def members(clock: Noon) -> Members:
    return Members(clock=clock)


def gateway(name: str = "g1", revision: int = 4) -> admin.Member:
    return admin.Member(
        name=f"members/{name}", kind=admin.MEMBER_KIND_GATEWAY, revision=revision, phase=admin.MEMBER_PHASE_APPLIED
    )


def shown(members: Members) -> dict[str, bool]:
    """Whether each gateway is shown as left behind."""
    return {each.name: each.left_behind for each in members.all() if each.kind == admin.MEMBER_KIND_GATEWAY}


async def test_a_gateway_answers_through_its_router(members: Members) -> None:
    members.report("stream", ROUTER, [gateway()])
    assert members.gateways() == {"g1": Answer(4, Phase.APPLIED)}
    assert shown(members) == {"members/g1": False}


async def test_a_gateway_that_its_router_hears_no_more_is_away_and_named(members: Members, clock: Noon) -> None:
    members.report("stream", ROUTER, [gateway()])
    members.report("stream", ROUTER, [])
    clock.pass_by(timedelta(seconds=40))
    assert members.gateways() == {}
    assert members.away() == {"g1": 40}
    [member] = [each for each in members.all() if each.left_behind]
    assert (member.revision, member.phase_reason) == (
        4,
        "no router has heard of it since 12:00:00 UTC, and it said no goodbye",
    )


@pytest.mark.parametrize("by", ["its stream ends", "it is silent"])
async def test_a_router_takes_its_gateways_along_when_it_goes(members: Members, clock: Noon, by: str) -> None:
    members.report("stream", ROUTER, [gateway()])
    if by == "its stream ends":
        members.left("stream")
    else:
        clock.pass_by(EXPIRY + timedelta(seconds=1))
    assert list(members.away()) == ["g1"]
    assert [each.name for each in members.all()] == ["members/g1"]


async def test_clients_that_a_gateway_does_not_list_are_counted_while_it_is_connected(members: Members) -> None:
    till = discovery.ConnectedClient(client_id="till", connections=3)
    reports = {
        "members/g1": discovery.ClientReport(clients=[till], total=3, kinds=1),
        "members/g2": discovery.ClientReport(clients=[till], total=1400, kinds=2345),
    }
    members.report("stream", ROUTER, [gateway("g1"), gateway("g2")], clients=reports)
    assert members.unlisted() == [Unlisted("g2", 1, 2345, 1397)]
    members.report("stream", ROUTER, [gateway("g1")])
    assert members.unlisted() == []


async def test_one_that_said_goodbye_is_forgotten(members: Members, clock: Noon) -> None:
    members.report("stream", ROUTER, [gateway()])
    clock.pass_by(timedelta(seconds=1))
    members.report("stream", ROUTER, [], {"members/g1": 0})
    assert shown(members) == {}
    assert members.known() == frozenset()


async def test_a_goodbye_from_before_its_return_says_nothing(members: Members, clock: Noon) -> None:
    members.report("r1", ROUTER, [gateway()])
    clock.pass_by(timedelta(seconds=1))
    members.report("r1", ROUTER, [], {"members/g1": 0})
    clock.pass_by(timedelta(seconds=10))
    members.report("r2", admin.Member(name="members/r2"), [gateway()])
    members.left("r2")  # the gateway came back, and is cut off now
    members.report("r1", ROUTER, [], {"members/g1": 10_000})
    assert list(members.away()) == ["g1"]


async def test_a_gateway_that_changed_routers_is_believed_where_it_is_now(members: Members, clock: Noon) -> None:
    members.report("r1", ROUTER, [gateway()])
    clock.pass_by(timedelta(seconds=1))
    members.report("r2", admin.Member(name="r2"), [gateway(revision=5)])
    assert members.gateways()["g1"].revision == 5
    assert next(m for m in members.all() if m.name == "members/g1").router == "r2"
    members.report("r1", ROUTER, [])
    assert members.away() == {}


async def test_who_was_passed_over_and_is_away_for_long_is_shown_no_more(members: Members, clock: Noon) -> None:
    members.report("stream", ROUTER, [gateway()])
    members.left("stream")
    clock.pass_by(KEPT + timedelta(seconds=1))
    assert shown(members) == {"members/g1": True}
    members.pass_over(["g1"])
    assert shown(members) == {}


async def test_of_many_that_are_away_the_last_ones_are_shown(members: Members, clock: Noon) -> None:
    for number in range(MAX_AWAY + 2):
        members.report(number, admin.Member(name=f"r{number}"), [gateway(f"g{number}")])
        members.left(number)
        clock.pass_by(timedelta(seconds=1))
    assert len(shown(members)) == MAX_AWAY
    assert "members/g0" not in shown(members)


async def test_what_another_process_had_heard_is_recalled(members: Members) -> None:
    known = gateway("g2", 3)
    known.last_seen_time.FromDatetime(datetime(2026, 1, 1, 11, 59, tzinfo=UTC))
    members.report("stream", ROUTER, [gateway("g1", 5)])
    members.recall({"members/g1": (gateway("g1", 3), True), "members/g2": (known, False)})
    assert members.away() == {"g2": 60}
    assert members.revision_of("g1") == 5
    connected = {name: connected for name, (_, connected) in members.register().items()}
    assert connected == {"members/g1": True, "members/g2": False}


async def test_of_those_that_were_connected_then_the_time_counts_from_now(members: Members, clock: Noon) -> None:
    long_since = gateway("g1", 3)
    long_since.last_seen_time.FromDatetime(datetime(2025, 1, 1, tzinfo=UTC))
    members.recall({"members/g1": (long_since, True)})
    clock.pass_by(timedelta(seconds=5))
    assert members.away() == {"g1": 5}


async def test_a_goodbye_that_the_register_has_missed_counts(members: Members, clock: Noon) -> None:
    members.report("stream", ROUTER, [gateway()])
    written = members.register()
    clock.pass_by(timedelta(seconds=1))
    members.report("stream", ROUTER, [], {"members/g1": 0})
    members.recall(written)
    assert members.known() == frozenset()


async def test_routers_of_an_older_release_are_known(members: Members) -> None:
    members.report("one", admin.Member(name="members/r1", version="0.1.0"), [])
    members.report("two", admin.Member(name="members/r2", version="9", table_format=TABLE_FORMAT), [])
    assert members.routers_below(TABLE_FORMAT) == {"r1": "0.1.0"}
    members.left("one")
    assert members.routers_below(TABLE_FORMAT) == {}


def of_process(process: str, revision: int = 4) -> admin.Member:
    member = gateway(revision=revision)
    member.process = process
    return member


async def test_a_goodbye_of_the_process_before_says_nothing_of_one_that_runs(members: Members, clock: Noon) -> None:
    """The router of the old process stood still, and reads its goodbye only now. The new process is cut off."""
    members.report("r1", ROUTER, [of_process("old")])
    clock.pass_by(EXPIRY + timedelta(seconds=1))
    members.report("r2", admin.Member(name="members/r2"), [of_process("new", 5)])
    members.left("r2")
    clock.pass_by(timedelta(seconds=1))
    members.report("r1", ROUTER, [], {"members/g1": 0}, None, {"members/g1": "old"})
    assert list(members.away()) == ["g1"]
    members.report("r1", ROUTER, [], {"members/g1": 0}, None, {"members/g1": "new"})
    assert members.known() == frozenset()


async def test_a_router_that_wakes_with_an_old_process_does_not_hide_the_new_one(members: Members, clock: Noon) -> None:
    members.report("r1", ROUTER, [of_process("old")])
    clock.pass_by(EXPIRY + timedelta(seconds=1))
    members.report("r2", admin.Member(name="members/r2"), [of_process("new", 5)])
    members.report("r1", ROUTER, [of_process("old")])
    assert members.gateways()["g1"].revision == 5
    members.left("r2")
    clock.pass_by(timedelta(seconds=1))
    members.report("r1", ROUTER, [], {"members/g1": 0}, None, {"members/g1": "old"})
    assert list(members.away()) == ["g1"]
    assert members.revision_of("g1") == 5


@pytest.mark.parametrize("first", ["old", "new"])
async def test_a_goodbye_leaves_a_process_of_the_same_name_that_another_router_hears(
    members: Members, clock: Noon, first: str
) -> None:
    """Control may hear of the processes in the wrong order: it started when both were there."""
    heard = {"old": ("r1", ROUTER), "new": ("r2", admin.Member(name="members/r2"))}
    for process in (first, *(heard.keys() - {first})):
        members.report(*heard[process], [of_process(process, 5 if process == "new" else 4)])
    clock.pass_by(timedelta(seconds=1))
    members.report("r1", ROUTER, [], {"members/g1": 0}, None, {"members/g1": "old"})
    assert members.gateways()["g1"].revision == 5
    members.left("r2")
    assert list(members.away()) == ["g1"]
    assert members.revision_of("g1") == 5


async def test_a_goodbye_counts_although_a_late_report_names_its_process(members: Members, clock: Noon) -> None:
    members.report("r1", ROUTER, [of_process("old")])
    members.report("r2", admin.Member(name="members/r2"), [of_process("old")])
    members.report("r2", admin.Member(name="members/r2"), [], {"members/g1": 0}, None, {"members/g1": "old"})
    members.report("r1", ROUTER, [of_process("old")])
    assert members.known() == frozenset()


async def test_a_gateway_that_tells_no_process_says_goodbye_by_its_name(members: Members, clock: Noon) -> None:
    members.report("r1", ROUTER, [of_process("new")])
    clock.pass_by(timedelta(seconds=1))
    members.report("r1", ROUTER, [], {"members/g1": 0})
    assert members.known() == frozenset()

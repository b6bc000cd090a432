"""Which process of a sidecar counts, and how its instances are shown to do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mesh.rpc import events, instances
from services.control.decisions.members.members import EXPIRY
from services.control.decisions.sidecars import sidecars as module
from services.control.decisions.sidecars.sidecars import Sidecars
from services.control.domain.errors import Conflict, InvalidField, Unavailable
from services.control.domain.sidecars.incarnations import EARLIER_RELEASE, incarnation_of

ELDER, YOUNGER = incarnation_of("1795305600000-zzzz"), incarnation_of("1795305600001-aaaa")
LATE = EXPIRY + timedelta(seconds=1)
ONE = events.ConsumerInstance(name="instances/billing.one", group="billing", instance_id="one", sidecar="s1")


class Noon:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Noon:
    return Noon()


@pytest.fixture
def sidecars(clock: Noon) -> Sidecars:
    """s1 holds billing.one."""
    return Sidecars(lambda: {ONE.name: ONE}, clock)


def status(name: str = ONE.name, partitions: int = 1) -> instances.InstanceStatus:
    places = [instances.InstancePartition(topic="orders", partition=number, lag=7) for number in range(partitions)]
    return instances.InstanceStatus(name=name, state=instances.INSTANCE_STATE_READING, partitions=places)


def test_the_process_that_began_later_counts(sidecars: Sidecars) -> None:
    assert sidecars.hear("s1", ELDER)
    assert sidecars.hear("s1", YOUNGER)
    assert not sidecars.hear("s1", ELDER)
    with pytest.raises(Conflict, match=r"a younger process of sidecar 's1' is there \(1795305600001-aaaa\)"):
        sidecars.require_current("s1", ELDER)
    sidecars.require_current("s1", YOUNGER)


def test_a_control_that_began_anew_takes_the_younger_ones_side_as_soon_as_it_speaks(clock: Noon) -> None:
    began_anew = Sidecars(dict, clock)
    assert began_anew.hear("s1", ELDER)
    assert began_anew.hear("s1", YOUNGER)
    assert not began_anew.hear("s1", ELDER)


def test_followers_are_told_of_a_younger_process_once(sidecars: Sidecars) -> None:
    told: list[str] = []
    sidecars.on_other_process = told.append
    for incarnation in (ELDER, ELDER, YOUNGER, ELDER, YOUNGER):
        sidecars.hear("s1", incarnation)
    assert told == ["s1"]


def test_an_elder_one_may_go_on_when_the_younger_has_been_silent(sidecars: Sidecars, clock: Noon) -> None:
    sidecars.hear("s1", YOUNGER)
    clock.now += LATE
    assert sidecars.hear("s1", ELDER)
    sidecars.require_current("s1", ELDER)


def test_a_sidecar_of_an_earlier_release_never_gives_way(sidecars: Sidecars) -> None:
    sidecars.hear("s1", ELDER)
    assert sidecars.hear("s1", EARLIER_RELEASE)
    sidecars.require_current("s1", ELDER)


@pytest.mark.parametrize("text", ["", "x7Hq", "1795305600000", "1795305600000-", "17953056000000000000-x", "1-a b"])
def test_an_incarnation_tells_when_it_began(text: str) -> None:
    with pytest.raises(InvalidField, match="as in 1795305600000-x7Hq"):
        incarnation_of(text)


def test_when_a_process_began_is_compared_as_a_number() -> None:
    assert incarnation_of("999-z") < incarnation_of("1000-a")


def test_how_an_instance_does_is_shown_with_the_time_of_the_last_word(sidecars: Sidecars, clock: Noon) -> None:
    assert sidecars.status_of(ONE) is None
    sidecars.hear("s1", ELDER)
    sidecars.report("s1", [status()])
    heard = sidecars.status_of(ONE)
    assert heard is not None
    assert (heard.status, heard.time) == (status(), clock.now)


def test_an_instance_whose_sidecar_is_silent_is_shown_as_unreachable_where_it_was(
    sidecars: Sidecars, clock: Noon
) -> None:
    sidecars.hear("s1", ELDER)
    sidecars.report("s1", [status()])
    clock.now += LATE
    heard = sidecars.status_of(ONE)
    assert heard is not None
    assert heard.status.state == instances.INSTANCE_STATE_UNREACHABLE
    assert heard.status.problem == "sidecar 's1' has not been heard of since 12:00:00 UTC"
    assert [each.lag for each in heard.status.partitions] == [7]
    assert not sidecars.is_alive("s1")


def test_only_the_sidecar_that_holds_an_instance_speaks_of_it(sidecars: Sidecars) -> None:
    sidecars.hear("s2", ELDER)
    sidecars.report("s2", [status(), status("instances/billing.unknown")])
    assert sidecars.status_of(ONE) is None


def test_known_are_those_that_are_heard_of_and_those_that_hold_instances(sidecars: Sidecars, clock: Noon) -> None:
    sidecars.hear("s2", ELDER)
    assert sidecars.known() == {"s1", "s2"}
    clock.now += LATE
    assert sidecars.known() == {"s1"}


def test_what_is_kept_is_bounded(sidecars: Sidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PARTITIONS", 10)
    sidecars.hear("s1", ELDER)
    for partitions, kept in ((11, 0), (10, 10), (10, 10)):
        sidecars.report("s1", [status(partitions=partitions)])
        heard = sidecars.status_of(ONE)
        assert heard is not None
        assert len(heard.status.partitions) == kept


def test_the_one_that_is_gone_for_longest_makes_room(
    sidecars: Sidecars, clock: Noon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SIDECARS", 2)
    sidecars.hear("s1", ELDER)
    clock.now += timedelta(seconds=5)
    sidecars.hear("s2", ELDER)
    with pytest.raises(Unavailable, match="at most 2 sidecars"):
        sidecars.hear("s3", ELDER)
    clock.now += EXPIRY
    assert sidecars.hear("s3", ELDER)
    assert sidecars.is_alive("s2")


@pytest.mark.parametrize(("number", "next_beat_ms"), [(1, 3_000), (1_200, 3_000), (2_000, 5_000), (9_000, 7_000)])
def test_many_sidecars_beat_less_often(sidecars: Sidecars, number: int, next_beat_ms: int) -> None:
    for each in range(number):
        sidecars.hear(f"s{each}", ELDER)
    assert sidecars.next_beat_ms == next_beat_ms
    assert 2 * sidecars.next_beat_ms < EXPIRY / timedelta(milliseconds=1)

"""When a worker that has ended is started again, and whether the gateway as a whole is ready."""

import pytest

from mesh.lifecycle import Phase
from services.gateway.workers.supervision import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    STEADY_S,
    Again,
    GiveUp,
    Supervision,
)

KILLED = "signal 9"


@pytest.fixture
def two() -> Supervision:
    """Both are ready since second 0."""
    supervision = Supervision((1, 2))
    for worker in (1, 2):
        supervision.begun(worker)
        supervision.told(worker, Phase.READY, "", 0.0)
    return supervision


def begins_again(supervision: Supervision, worker: int, now: float) -> None:
    supervision.begun(worker)
    supervision.told(worker, Phase.READY, "", now)


def test_it_is_ready_when_all_are() -> None:
    supervision = Supervision((1, 2))
    assert supervision.trouble == "worker 1 starting; worker 2 starting"
    supervision.told(1, Phase.READY, "", 0.0)
    supervision.told(2, Phase.NOT_READY, "waits for the first routing table", 0.0)
    assert (supervision.complete, supervision.trouble) == (False, "worker 2 waits for the first routing table")
    supervision.told(2, Phase.READY, "", 1.0)
    assert (supervision.complete, supervision.trouble) == (True, "")


def test_one_that_fails_before_all_were_ready_ends_the_gateway() -> None:
    supervision = Supervision((1, 2))
    supervision.told(1, Phase.READY, "", 0.0)
    outcome = supervision.ended(2, "exit code 1", 1.0)
    assert isinstance(outcome, GiveUp)
    assert "worker 2 has ended (exit code 1)" in outcome.reason


def test_one_that_dies_later_is_missed_and_comes_again(two: Supervision) -> None:
    outcome = two.ended(2, KILLED, 10.0)
    assert isinstance(outcome, Again)
    assert FIRST_PAUSE_S / 2 <= outcome.after_s <= FIRST_PAUSE_S
    assert (two.is_ready(2), two.trouble) == (False, "worker 2 has ended (signal 9)")
    two.begun(2)
    assert two.trouble == "worker 2 starting"
    two.told(2, Phase.READY, "", 12.0)
    assert (two.is_ready(2), two.trouble) == (True, "")


def test_the_pause_grows_to_a_bound_while_it_does_not_last(two: Supervision) -> None:
    pauses = []
    for second in range(40):
        outcome = two.ended(1, KILLED, float(second))
        assert isinstance(outcome, Again)
        pauses.append(outcome.after_s)
        begins_again(two, 1, float(second))
    assert pauses[0] <= FIRST_PAUSE_S < pauses[2]
    assert max(pauses) <= LONGEST_PAUSE_S
    assert min(pauses[10:]) >= LONGEST_PAUSE_S / 2
    other = two.ended(2, KILLED, 41.0)
    assert isinstance(other, Again)
    assert other.after_s <= FIRST_PAUSE_S, "the other one has not failed before"


def test_one_that_served_for_long_has_not_failed_before(two: Supervision) -> None:
    for second in range(10):
        two.ended(1, KILLED, float(second))
        begins_again(two, 1, float(second))
    outcome = two.ended(1, KILLED, 9 + STEADY_S)
    assert isinstance(outcome, Again)
    assert outcome.after_s <= FIRST_PAUSE_S


def test_at_a_stop_nobody_comes_again(two: Supervision) -> None:
    two.stopping = True
    assert two.ended(1, "exit code 0", 5.0) is None

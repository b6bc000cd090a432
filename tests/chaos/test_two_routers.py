"""Two routers: one after the other is killed while rules change, and no gateway misses a decision or goes back."""

from __future__ import annotations

import signal
from itertools import cycle, islice

import pytest

from tests.fixtures.router_pairs import Pair

pytestmark = pytest.mark.timeout(300)

ROUNDS = 3


def test_gateways_go_on_with_the_other_router_and_never_back(pair: Pair) -> None:
    took: list[float] = []
    for number in islice(cycle((signal.SIGKILL, signal.SIGTERM)), ROUNDS):
        router = pair.watched()
        gone = pair.take_away(router, number)
        pair.log.rule(f"t{pair.log.last.position}", to="c2")
        pair.log.publish()
        took += [at - gone for at in pair.all_run(pair.log.last.position)]
        pair.bring_back(router)
    pair.check()
    print("from the loss of a router to the next decision, s:", *(f"{each:.2f}" for each in took))


@pytest.mark.soak
@pytest.mark.parametrize("outcome", ["switch", "abort"])
def test_a_rollout_whose_router_is_killed_ends_alike_everywhere(pair: Pair, outcome: str) -> None:
    before, after = pair.homes_of("apples")
    pair.log.move("apples", to=after)
    pair.log.publish()
    pair.all_hold()
    killed = pair.watched()
    pair.take_away(killed)
    if outcome == "switch":
        pair.log.switch()
    else:
        pair.log.abort()
    pair.log.publish()
    pair.none_holds()
    pair.check()
    assert pair.live_on("apples") == {after if outcome == "switch" else before}
    pair.bring_back(killed)


def test_a_gateway_that_said_held_refuses_until_a_router_tells_how_the_move_ended(pair: Pair) -> None:
    before, after = pair.homes_of("apples")
    pair.log.move("apples", to=after)
    pair.log.publish()
    pair.all_hold()
    for router in pair.routers:
        pair.take_away(router)
    pair.all_refuse()
    assert pair.live_on("apples") == {before}
    pair.bring_back(*pair.routers)
    pair.log.switch()
    pair.log.publish()
    pair.none_holds()
    pair.check()
    assert pair.live_on("apples") == {after}

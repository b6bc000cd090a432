"""Two routers, of which one is taken away at random, again and again, while rules change and topics move.

`MESH_SOAK_S` bounds it; `MESH_SEED`, which it prints, repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time

import pytest

from tests.fixtures.router_pairs import Pair

SOAK_S = float(os.environ.get("MESH_SOAK_S", "300"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**32)))
BACK_WITHIN_S = 2.0
"""From the end of a router to the next decision in every gateway."""


@pytest.mark.timeout(SOAK_S + 600)
def test_gateways_are_back_within_two_seconds_and_never_go_back(pair: Pair) -> None:
    print(f"MESH_SEED={SEED}")
    chance = random.Random(SEED)
    took: list[float] = []
    until = time.monotonic() + SOAK_S
    while time.monotonic() < until:
        ends = chance.choice((None, "switch", "abort"))
        if ends is not None:
            pair.log.move("apples", to=pair.homes_of("apples")[1])
            pair.log.publish()
            if chance.random() < 0.5:
                pair.all_hold()
        router = pair.watched() if chance.random() < 0.7 else chance.choice(pair.routers)
        gone = pair.take_away(router, chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
        if ends == "switch":
            pair.log.switch()
        elif ends == "abort":
            pair.log.abort()
        pair.log.rule(f"t{pair.log.last.position}", to="c2")
        pair.log.publish()
        took += [at - gone for at in pair.all_run(pair.log.last.position)]
        pair.none_holds()
        pair.bring_back(router)
        pair.check()
    slow = [f"{each:.2f}" for each in took if each > BACK_WITHIN_S]
    print(
        f"{len(took) // 2} routers taken away; from the end of one to the next decision in a gateway: "
        f"median {statistics.median(took):.2f} s, longest {max(took):.2f} s"
    )
    assert not slow, f"MESH_SEED={SEED}"

"""The size of a mesh of the judge, chosen from the seed of a run unless an option sets it."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    gateways: int
    workers: int
    """Processes of each gateway behind one address."""
    routers: int
    controls: int
    brokers: int
    """Brokers of the cluster that is not the mesh's home: 1, or 3 of which 2 can be stopped."""

    @classmethod
    def chosen(
        cls, seed: int, gateways: int | None, workers: int | None, routers: int | None, brokers: int | None
    ) -> Shape:
        chance = random.Random(f"{seed}/shape")
        found = (chance.choice((1, 2, 2)), chance.choice((1, 2)), chance.choice((1, 2, 2)), chance.choice((1, 1, 3)))
        given = (gateways, workers, routers, brokers)
        gateways, workers, routers, brokers = (
            one if one is not None else other for one, other in zip(given, found, strict=True)
        )
        return cls(gateways, workers, routers, 2, brokers)

    def __str__(self) -> str:
        return (
            f"{self.gateways} gateways of {self.workers} workers, {self.routers} routers, {self.controls} controls, "
            f"2 clusters of 1 and {self.brokers} brokers"
        )

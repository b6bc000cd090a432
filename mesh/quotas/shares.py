"""Divides quotas over the gateways by their use, so that all gateways together keep to each quota.

Theory of operation
1. Each gateway reports which part of a quota its clients use, and whether it has made them pause. The shares follow
   from the reports alone; they add up to the whole quota.
2. A small part (`FLOOR`) is divided equally, so that a gateway whose first client comes can begin.
3. The rest goes to the gateways by their needs. A gateway without pauses needs its use and some headroom. A gateway
   with pauses needs all that it can get. Nobody gets more than its need while others have less than theirs; if all have
   what they need, they share what is left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mesh.quotas.policy import Sharers

FLOOR: Final = 0.1
HEADROOM: Final = 1.25
"""The use may grow by so much until the next report."""


@dataclass(frozen=True, slots=True)
class Use:
    """The use of a quota at one gateway."""

    part: float
    """The whole quota is 1."""
    pauses: bool

    @property
    def need(self) -> float:
        return math.inf if self.pauses else HEADROOM * self.part


Uses = Mapping[Sharers, Use]


def shares(reports: Mapping[str, Uses], gateways: frozenset[str]) -> dict[str, dict[Sharers, float]]:
    """The share of each gateway in each quota that any gateway uses, by gateway.

    A gateway has an equal part of all other quotas.
    """
    found: dict[str, dict[Sharers, float]] = {name: {} for name in gateways}
    for sharers in {each for name in gateways for each in reports.get(name, {})}:
        needs = {name: use.need for name in gateways if (use := reports.get(name, {}).get(sharers)) is not None}
        for name, share in _divided(needs, gateways).items():
            found[name][sharers] = share
    return found


def _divided(needs: Mapping[str, float], gateways: frozenset[str]) -> dict[str, float]:
    given = dict.fromkeys(gateways, FLOOR / len(gateways))
    rest = 1.0 - FLOOR
    waiting = sorted(gateways, key=lambda name: needs.get(name, 0.0))
    while waiting:
        name = waiting[0]
        got = min(needs.get(name, 0.0), rest / len(waiting))
        given[name] += got
        rest -= got
        del waiting[0]
    return {name: share + rest / len(gateways) for name, share in given.items()}

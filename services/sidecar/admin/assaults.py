"""Faults on purpose: which assaults there are, how they are set, and when one strikes.

Names, members and defaults are those of light-chaos-monkey, so tools that drive the original drive this too. Nothing
strikes while `chaos_monkey_enabled` is off, which is the default.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Assault:
    """One kind of fault. The members of its JSON form are in `NAMES`."""

    enabled: bool = False
    bypass: bool = True
    """Set up, but not striking."""
    level: int = 10
    """One request in `level` is struck, at random; 1 means every request."""

    @property
    def is_armed(self) -> bool:
        return self.enabled and not self.bypass

    def strikes(self, chance: random.Random) -> bool:
        return self.is_armed and chance.randrange(self.level) == 0

    def shown(self) -> dict[str, Any]:
        """The JSON form of the assault."""
        return {_json_name(one.name): getattr(self, one.name) for one in fields(self)}

    def with_members(self, given: dict[str, Any]) -> Self:
        """A new assault; members that are not given have their defaults.

        ValueError names a member without a valid value.
        """
        known = {_json_name(one.name): one.name for one in fields(self)}
        if others := given.keys() - known.keys():
            raise ValueError(f"{', '.join(sorted(others))}: no member of this assault, which has {', '.join(known)}")
        changed = replace(type(self)(), **{known[name]: value for name, value in given.items()})
        changed.check()
        return changed

    def check(self) -> None:
        """ValueError when its members do not go together."""
        if self.level < 1:
            raise ValueError(f"level: {self.level} found, 1 or more expected")


@dataclass(frozen=True, slots=True)
class ExceptionAssault(Assault):
    """The request is answered 500."""


@dataclass(frozen=True, slots=True)
class KillappAssault(Assault):
    """The process ends at once, as with kill -9."""


@dataclass(frozen=True, slots=True)
class LatencyAssault(Assault):
    """The request is served later. Milliseconds."""

    latency_range_start: int = 1000
    latency_range_end: int = 3000

    def delay_seconds(self, chance: random.Random) -> float:
        return chance.randint(self.latency_range_start, self.latency_range_end) / 1000

    def check(self) -> None:
        Assault.check(self)
        if not 0 <= self.latency_range_start <= self.latency_range_end:
            raise ValueError(
                f"latencyRangeStart {self.latency_range_start} and latencyRangeEnd {self.latency_range_end}: "
                "expected 0 <= start <= end"
            )


@dataclass(frozen=True, slots=True)
class MemoryAssault(Assault):
    """Memory is filled step by step, held, and given back. Milliseconds, and fractions of what the process may use."""

    memory_milliseconds_hold_filled_memory: int = 90_000
    memory_milliseconds_wait_next_increase: int = 1_000
    memory_fill_increment_fraction: float = 0.15
    memory_fill_target_fraction: float = 0.25

    def steps(self, available: int, ceiling: int) -> list[int]:
        """How many bytes to take in each step; together never more than `ceiling`."""
        target = min(int(available * self.memory_fill_target_fraction), ceiling)
        step = max(int(available * self.memory_fill_increment_fraction), 1)
        whole, rest = divmod(target, step)
        return [step] * whole + ([rest] if rest else [])

    def check(self) -> None:
        Assault.check(self)
        for name in ("memory_milliseconds_hold_filled_memory", "memory_milliseconds_wait_next_increase"):
            if getattr(self, name) < 0:
                raise ValueError(f"{_json_name(name)}: {getattr(self, name)} found, 0 or more expected")
        for name in ("memory_fill_increment_fraction", "memory_fill_target_fraction"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{_json_name(name)}: {getattr(self, name)} found, more than 0 and at most 1 expected")


PACKAGE = "com.networknt.chaos"
DEFAULTS: dict[str, Assault] = {
    f"{PACKAGE}.LatencyAssaultHandler": LatencyAssault(),
    f"{PACKAGE}.ExceptionAssaultHandler": ExceptionAssault(),
    f"{PACKAGE}.KillappAssaultHandler": KillappAssault(),
    f"{PACKAGE}.MemoryAssaultHandler": MemoryAssault(),
}
"""By the names that the original gives them."""


class Assaults:
    """The assaults that are set now."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        """Whether assaults can be set at all."""
        self._set = dict(DEFAULTS)
        self.on_change: Callable[[Assault], None] = lambda assault: None
        """Called with the assault that was set."""
        self.any_armed = False
        """Whether an assault may strike. A request pays only this comparison."""

    def __getitem__(self, name: str) -> Assault:
        """KeyError for a name that is none."""
        return self._set[name]

    def set(self, name: str, given: dict[str, Any]) -> Assault:
        """Replaces one. KeyError for an unknown name; ValueError, naming the member, when it makes no sense."""
        self._set[name] = assault = self._set[name].with_members(given)
        self.any_armed = any(one.is_armed for one in self._set.values())
        self.on_change(assault)
        return assault

    def striking(self, chance: random.Random) -> list[Assault]:
        """The assaults that strike this request."""
        return [one for one in self._set.values() if one.strikes(chance)]

    def shown(self) -> dict[str, dict[str, Any]]:
        return {name: one.shown() for name, one in self._set.items()}


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)

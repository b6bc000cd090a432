"""The command by which a plan has another process do work that would block the event loop."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class Convert:
    """`function` is pure and of a module's top level. Arguments and result are plain data, with no view into a buffer.

    Result: the function's result, or NotConverted.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class NotConverted:
    """The function did not come to its end: there was no room, or no time."""

    reason: str


def convert(function: Callable[[*Ts], T], *arguments: *Ts) -> Generator[Convert, Any, T | NotConverted]:
    result: T | NotConverted = yield Convert(function, arguments)
    return result

"""A value with fields that can be replaced, in whatever format: what rules about fields need of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from mesh.record_transforms import JsonPath

Steps = Sequence[tuple[JsonPath, int]]
"""The rest of each path from a place in a value on, and the index of the path."""


class UnreadableError(ValueError):
    """The value is not of its format: where, and why; nothing of its content."""


class Part(NamedTuple):
    """A field of a value."""

    field: int
    """The index of its path."""
    clear: bytes
    """The content that is encrypted, or that a reader gets as it is stored."""
    token: str
    """The text, if the part may be a token (`envelope.read_token`); else empty."""
    at: int = 0
    """The place of the part among all of its value."""
    kept: str = ""
    """The reason why the part can't be encrypted; empty if it can."""


class Document(Protocol):
    """A value, read."""

    @property
    def parts(self) -> Sequence[Part]:
        """In the order of the value."""
        ...

    def token(self, part: Part, text: str) -> bytes:
        """The bytes in the place of an encrypted part."""
        ...

    def clear(self, part: Part, clear: bytes) -> bytes:
        """The bytes in the place of a part with this content."""
        ...

    def mask(self, part: Part) -> bytes:
        """The bytes in the place of a masked part."""
        ...

    def with_parts(self, new: Sequence[bytes]) -> bytes:
        """The value with something else in the place of each part."""
        ...


T = TypeVar("T", str, bytes)


def joined(whole: T, places: Sequence[tuple[int, int]], new: Sequence[T]) -> T:
    """The whole with other pieces between these starts and ends."""
    pieces: list[T] = []
    at = 0
    for (start, end), piece in zip(places, new, strict=True):
        pieces += (whole[at:start], piece)
        at = end
    pieces.append(whole[at:])
    return whole[:0].join(pieces)


def steps_of(paths: Sequence[JsonPath]) -> Steps:
    """The steps from the root of a value on."""
    return [(path, index) for index, path in enumerate(paths)]


def field_at(steps: Steps) -> int | None:
    """The index of the path that ends here; None if no path does."""
    return next((index for path, index in steps if not path), None)


def steps_behind(steps: Steps, step: str | None) -> Steps:
    """The steps from a member on; ELEMENTS for those of a list."""
    return [(path[1:], index) for path, index in steps if path and path[0] == step]

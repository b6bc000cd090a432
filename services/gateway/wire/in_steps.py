"""Decodes and encodes messages with very many structs in steps: between two steps the event loop may serve others."""

from collections.abc import Generator
from itertools import islice
from typing import Any, TypeVar

from services.gateway.wire.codec import (
    Budget,
    ReaderSource,
    WriterSource,
    bound_of,
    checked_version,
    compiled,
    remembered,
)
from services.gateway.wire.primitives import Buffer, WireError
from services.gateway.wire.schema import FieldSpec, Struct

M = TypeVar("M", bound=Struct)
STRUCTS_IN_A_STEP = 200
"""Structs of the message's own lists, as topics of Metadata, that take a millisecond."""


def decode_in_steps(cls: type[M], version: int, buffer: Buffer, offset: int = 0) -> Generator[None, None, M]:
    """As `codec.decode`."""
    view = memoryview(buffer)
    reading = _reader(cls, version)(view, offset, len(view), Budget(bound_of(cls)))
    decoded, position = yield from _several_at_once(reading)
    if position != len(view):
        fact = f"{len(view) - position} bytes follow the end of the message (v{version})"
        raise WireError(cls.__name__, position, fact)
    message: M = decoded
    return message


def encode_in_steps(message: Struct, version: int) -> Generator[None, None, bytearray]:
    """As `codec.encode`."""
    out = bytearray()
    yield from _several_at_once(_writer(type(message), version)(out, message))
    return out


def _several_at_once(steps: Generator[None, None, Any]) -> Generator[None, None, Any]:
    outcome: list[Any] = []

    def going() -> Generator[None, None, None]:
        outcome.append((yield from steps))

    every = going()
    while sum(1 for _ in islice(every, STRUCTS_IN_A_STEP)) == STRUCTS_IN_A_STEP:
        yield
    return outcome[0]


@remembered
def _reader(cls: type[Struct], version: int) -> Any:
    return compiled("read", _Reader(cls, version, checked_version(cls, version)))


@remembered
def _writer(cls: type[Struct], version: int) -> Any:
    return compiled("write", _Writer(cls, version, checked_version(cls, version)))


class _Reader(ReaderSource):
    """As its base, and stops after each struct of a list: the last line is in the loop over the structs."""

    def _array(self, indent: int, name: str, spec: FieldSpec, label: str) -> None:
        super()._array(indent, name, spec, label)
        if spec.struct is not None and not spec.nullable(self.version):
            self.add(indent + 1, "yield")


class _Writer(WriterSource):
    """The same."""

    def _array(self, indent: int, out: str, value: str, spec: FieldSpec, label: str) -> None:
        super()._array(indent, out, value, spec, label)
        if spec.struct is not None:
            self.add(indent + 2, "yield")

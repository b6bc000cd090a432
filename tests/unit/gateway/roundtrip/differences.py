"""Where two messages differ: by the paths of their fields, without the indexes of lists."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from services.gateway.wire.schema import FieldSpec, Named, Struct, fields_of, spec_of


class Difference(NamedTuple):
    path: str
    """Of the field, from the top: `topics.partitions.leader_epoch`. Lists of different length differ themselves."""
    expected: object
    found: object


def differences(expected: Struct, found: Struct, version: int, other: int) -> Iterator[Difference]:
    """What `found`, a message of `version`, does not have as in `expected`.

    `other` is the version on the other side of the gateway: what that one lacks, nobody could tell. Except for what a
    topic is called: a name stands for an id, and an id for a name.
    """

    def matters(name: str, spec: FieldSpec) -> bool:
        return spec.present(version) and (spec.present(other) or spec.names is Named.TOPIC or name == "topic_id")

    def structs(one: Struct, two: Struct, path: str) -> Iterator[Difference]:
        for name, spec, _ in fields_of(type(one)):
            if matters(name, spec):
                yield from values(getattr(one, name), getattr(two, name), f"{path}{name}")
        if tagged and one.unknown_tags != _plain(two.unknown_tags):
            yield Difference(f"{path}unknown_tags", one.unknown_tags, two.unknown_tags)

    def values(one: Any, two: Any, path: str) -> Iterator[Difference]:
        if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
            for a, b in zip(one, two, strict=True):
                yield from values(a, b, path)
        elif isinstance(one, Struct) and isinstance(two, Struct):
            yield from structs(one, two, f"{path}.")
        elif one != _plain(two):
            yield Difference(path, one, two)

    spec = spec_of(type(found))
    tagged = spec.is_flexible(version) and spec.is_flexible(other)
    assert type(expected) is type(found), f"{type(found).__name__} in the place of {type(expected).__name__}"
    yield from structs(expected, found, "")


def _plain(value: Any) -> Any:
    """Windows into buffers as bytes, for people who read a failure."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {key: bytes(each) for key, each in value.items()}
    return value

"""Avro's types that are made of other types: their JSON becomes values that fastavro writes, and back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from services.sidecar.formats.avro_values import Convert, Value
from services.sidecar.formats.misfit import MisfitError, expected, shown

NO_DEFAULT: Any = object()
NULL = ("null", None)
"""The null of a union, for fastavro: the tuple names the type, so fastavro need not search the union for it."""


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type, ready for use."""

    name: str
    """The tag of this type's values in a union: the full name, or the name of the primitive type."""
    wire: Any
    """The schema that fastavro uses: our names, no logical types, unions as the module `avro` describes them."""
    value: Value
    weighs: bool = True
    """Whether each value takes at least a byte."""


@dataclass(slots=True)
class Field:
    """A member of a record."""

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    """The default in the schema."""
    written_default: Any = NO_DEFAULT
    """The default in fastavro's form. A MisfitError if the default does not fit its type: registries accept that."""


@dataclass(slots=True)
class Record:
    """A record. Its fields may have its own type, so `complete` adds them after the record is made."""

    name: str
    fields: list[Field] = field(default_factory=list)
    _plan: list[tuple[str, Convert, Field]] = field(default_factory=list)
    _readers: list[tuple[str, Convert]] = field(default_factory=list)

    def complete(self, fields: list[Field]) -> None:
        self.fields = fields
        self._plan = [(one.name, one.type.value.write, one) for one in fields]
        self._readers = [(one.name, one.type.value.read) for one in fields if one.type.value.read is not None]

    @property
    def is_read_as_it_is(self) -> bool:
        return not self._readers

    def write(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise expected("record-start", value)
        written = {}
        given = 0
        for name, write, one in self._plan:
            if name in value:
                given += 1
                try:
                    written[name] = write(value[name])
                except MisfitError as error:
                    raise error.at(name) from None
            else:
                written[name] = _default_of(one)
        if given != len(value):
            known = {one.name: one for one in self.fields}
            unknown = next(name for name in value if name not in known)
            raise MisfitError(f"{self.name} has no such field (known: {', '.join(known)})").at(unknown)
        return written

    def read(self, written: dict[str, Any]) -> dict[str, Any]:
        for name, read in self._readers:
            written[name] = read(written[name])
        return written

    def suits(self, value: Any) -> bool:
        if type(value) is not dict:
            return False
        known = {one.name for one in self.fields}
        return all(name in known for name in value)


def _default_of(one: Field) -> Any:
    if one.default is NO_DEFAULT:
        raise MisfitError(f"Expected {one.type.name}. Got END_OBJECT").at(one.name)
    if isinstance(one.written_default, MisfitError):
        raise MisfitError(f"left out, and its default does not fit its type: {one.written_default}").at(one.name)
    return one.written_default


def enum(symbols: Sequence[str]) -> Value:
    known = frozenset(symbols)

    def write(value: Any) -> str:
        if type(value) is not str:
            raise expected("enum", value)
        if value not in known:
            raise MisfitError(f"{shown(value)} is none of {', '.join(symbols)}")
        return value

    return Value(write, suits=lambda value: type(value) is str and value in known)


def array(items: Value) -> Value:
    write_one, read_one = items.write, items.read

    def write(value: Any) -> list[Any]:
        if type(value) is not list:
            raise expected("array-start", value)
        written: list[Any] = []
        try:
            for one in value:
                written.append(write_one(one))  # noqa: PERF401  # its length is the index of the one that does not fit
        except MisfitError as error:
            raise error.at(len(written)) from None
        return written

    read = None if read_one is None else lambda written: [read_one(one) for one in written]
    return Value(write, read, lambda value: type(value) is list)


def mapping(values: Value) -> Value:
    write_one, read_one = values.write, values.read

    def write(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise expected("map-start", value)
        written = {}
        for key, one in value.items():
            try:
                written[key] = write_one(one)
            except MisfitError as error:
                raise error.at(key) from None
        return written

    read = None if read_one is None else lambda written: {key: read_one(one) for key, one in written.items()}
    return Value(write, read, lambda value: type(value) is dict)


@dataclass(frozen=True, slots=True)
class Branch:
    """One type of a union, other than null."""

    type: AvroType
    wrapper: str
    """The name of the record that stands for this branch in fastavro's schema."""

    def written(self, value: Any) -> tuple[str, dict[str, Any]]:
        return self.wrapper, {self.type.name: self.type.value.write(value)}

    def written_or_misfit(self, value: Any) -> "tuple[str, dict[str, Any]] | MisfitError":
        try:
            return self.written(value)
        except MisfitError as error:
            return error

    @property
    def wire(self) -> Any:
        return {"type": "record", "name": self.wrapper, "fields": [{"name": self.type.name, "type": self.type.wire}]}


@dataclass(frozen=True, slots=True)
class Union:
    """Null or one of the branches."""

    branches: list[Branch]
    has_null: bool
    tagged: bool
    """Whether values are read with the name of their type around them."""
    _by_tag: dict[str, Branch] = field(init=False)

    def __post_init__(self) -> None:
        by_tag: dict[str, Branch] = {}
        for branch in self.branches:
            by_tag.setdefault(branch.type.name.rpartition(".")[2], branch)
        by_tag |= {branch.type.name: branch for branch in self.branches}
        object.__setattr__(self, "_by_tag", by_tag)

    @property
    def value(self) -> Value:
        reads = any(branch.type.value.read is not None for branch in self.branches)
        read = (self._read_tagged if reads else None) if self.tagged else self._read_plain
        return Value(self.write, read, lambda value: True)

    def write(self, value: Any) -> tuple[str, Any]:
        if value is None and self.has_null:
            return NULL
        misfit: MisfitError | None = None
        if type(value) is dict and len(value) == 1:
            ((tag, content),) = value.items()
            if branch := self._by_tag.get(tag):
                found = branch.written_or_misfit(content)
                if not isinstance(found, MisfitError):
                    return found
                misfit = found.at(tag)  # the value may still be a plain record, or map, with this one member
        return self._written_plain(value, misfit)

    def _written_plain(self, value: Any, misfit: MisfitError | None) -> tuple[str, Any]:
        natural = [branch for branch in self.branches if branch.type.value.suits(value)]
        others = [branch for branch in self.branches if branch not in natural]
        for branch in (*natural, *others):
            found = branch.written_or_misfit(value)
            if not isinstance(found, MisfitError):
                return found
            if misfit is None and (branch in natural or len(self.branches) == 1):
                misfit = found
        raise misfit or expected(f"start-union ({', '.join(self.names)})", value)

    @property
    def names(self) -> list[str]:
        return ["null"] * self.has_null + [branch.type.name for branch in self.branches]

    def _read_tagged(self, written: dict[str, Any] | None) -> Any:
        if written is not None:
            ((tag, content),) = written.items()
            if (read := self._by_tag[tag].type.value.read) is not None:
                written[tag] = read(content)
        return written

    def _read_plain(self, written: dict[str, Any] | None) -> Any:
        if written is None:
            return None
        ((tag, content),) = written.items()
        read = self._by_tag[tag].type.value.read
        return content if read is None else read(content)


def in_progress(record: Record) -> Value:
    """The value of a record inside itself: nobody knows yet whether reading the record needs a conversion."""
    return Value(record.write, record.read, record.suits)

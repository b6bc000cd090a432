"""Decodes and encodes messages: `decode(MetadataRequest, 9, buffer)`, `encode(message, 9)`.

For each (class, version) a reader and a writer are compiled once, at first use, from the declarations in `messages/`.
They are plain Python source: neighbouring fields of fixed size are one `struct` call, and each other field is one call
of `primitives`. `source(cls, version)` shows this source.

Rules:
1. `decode` consumes the whole buffer or raises; it raises nothing but `WireError`, whatever the bytes are.
2. Memory stays in proportion to the bytes: counts are compared with the bytes that are left. One message may hold at
   most `max_elements` structs, strings and unknown tags: two bytes on the wire are a hundred times that in Python.
3. A field that the version lacks takes its default. To encode such a field with another value is an error, unless the
   field is ignorable: a value must not get lost in silence because the version can't carry it.
4. Byte fields of a decoded message are slices of the buffer given.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct as Packing
from struct import error as struct_error
from typing import Any, TypeVar, cast

from services.gateway.wire import primitives
from services.gateway.wire.primitives import Buffer, UnsupportedVersionError, WireError
from services.gateway.wire.schema import FieldSpec, Kind, Struct, Type, fields_of, spec_of

M = TypeVar("M", bound=Struct)

MAX_REQUEST_ELEMENTS = 200_000
"""Structs, strings and unknown tags in one request, which may come from anyone: some 40 MB as objects."""
MAX_ELEMENTS = 1_000_000
"""The same in a broker's answer: Metadata with five times the partitions of the largest clusters known."""

F = TypeVar("F", bound=Callable[..., Any])


def remembered(function: F) -> F:
    """`functools.cache` with the function's own types (mypy takes classes of mutable dataclasses for unhashable)."""
    return cast(F, cache(function))


class Budget:
    """Counts down the elements of one message."""

    __slots__ = ("left",)

    def __init__(self, elements: int) -> None:
        self.left = elements

    def take(self, count: int, field: str, position: int) -> None:
        self.left -= count
        if self.left < 0:
            raise WireError(field, position, f"{count} elements are more than one message may hold")


_Reader = Callable[[memoryview, int, int, Budget], tuple[Any, int]]
_Writer = Callable[[bytearray, Any], None]


def decode(
    cls: type[M],
    version: int,
    buffer: Buffer,
    offset: int = 0,
    end: int | None = None,
    *,
    max_elements: int | None = None,
) -> M:
    """The message in `buffer[offset:end]`, which must hold it exactly."""
    view = memoryview(buffer)
    stop = len(view) if end is None else end
    if not 0 <= offset <= stop <= len(view):
        raise WireError(cls.__name__, offset, f"the range to byte {stop} does not lie in the {len(view)} bytes given")
    decoded, position = _reader_of(cls, version)(view, offset, stop, Budget(max_elements or bound_of(cls)))
    if position != stop:
        raise WireError(cls.__name__, position, f"{stop - position} bytes follow the end of the message (v{version})")
    return cast(M, decoded)


def bound_of(cls: type[Struct]) -> int:
    return MAX_ELEMENTS if spec_of(cls).kind is Kind.RESPONSE else MAX_REQUEST_ELEMENTS


def decode_prefix(cls: type[M], version: int, buffer: Buffer, offset: int = 0) -> tuple[M, int]:
    """As `decode`, but bytes may follow; also returns their offset. For data that newer peers may have extended."""
    view = memoryview(buffer)
    decoded, position = _reader_of(cls, version)(view, offset, len(view), Budget(bound_of(cls)))
    return cast(M, decoded), position


def encode(message: Struct, version: int) -> bytes:
    """The body of `message` in `version`, without any header."""
    out = bytearray()
    encode_into(out, message, version)
    return bytes(out)


def encode_into(out: bytearray, message: Struct, version: int) -> None:
    """Append the body of `message`, for those who have written a header before."""
    cls = type(message)
    write = _writer_of(cls, version)
    try:
        write(out, message)
    except (struct_error, TypeError, AttributeError) as error:
        raise WireError(cls.__name__, -1, f"a value does not fit its type in v{version}: {error}") from error


def checked_version(cls: type[Struct], version: int) -> bool:
    """Whether this version is flexible; raises where it does not exist."""
    spec = spec_of(cls)
    if not spec.supports(version):
        low, high = spec.versions
        raise UnsupportedVersionError(cls.__name__, -1, f"version {version} does not exist (known: {low}-{high})")
    return spec.is_flexible(version)


@remembered
def _reader_of(cls: type[Struct], version: int) -> _Reader:
    return _reader(cls, version, checked_version(cls, version))


@remembered
def _writer_of(cls: type[Struct], version: int) -> _Writer:
    return _writer(cls, version, checked_version(cls, version))


def source(cls: type[Struct], version: int) -> str:
    """The Python that reads and writes this message: for people who debug."""
    flexible = checked_version(cls, version)
    return ReaderSource(cls, version, flexible).text() + "\n\n" + WriterSource(cls, version, flexible).text()


@remembered
def _reader(cls: type[Struct], version: int, flexible: bool) -> _Reader:
    return cast(_Reader, compiled("read", ReaderSource(cls, version, flexible)))


@remembered
def _writer(cls: type[Struct], version: int, flexible: bool) -> _Writer:
    return cast(_Writer, compiled("write", WriterSource(cls, version, flexible)))


def compiled(name: str, unit: "_Source") -> Any:
    text = unit.text()
    exec(compile(text, f"<{name} {unit.cls.__name__} v{unit.version}>", "exec"), unit.names)
    return unit.names[name]


@remembered
def _least_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """The fewest bytes that a struct takes; the check of an array's count uses them."""
    size = 1 if flexible else 0
    for _, spec, _ in fields_of(cls):
        if spec.present(version) and spec.tag is None:
            size += _least_field_size(spec, version, flexible)
    return max(size, 1)


def _least_field_size(spec: FieldSpec, version: int, flexible: bool) -> int:
    if spec.repeated:
        return 1 if flexible else 4
    if spec.struct is not None:
        return 1 if spec.nullable(version) else _least_size(spec.struct, version, flexible)
    if spec.kind.fixed:
        return Packing(">" + spec.kind.value).size
    return 1 if flexible else {Type.STRING: 2, Type.BYTES: 4}[spec.kind]


class _Source:
    """One function in the making: its lines, and the objects that its names stand for."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.names: dict[str, Any] = {
            name: value for name, value in vars(primitives).items() if name.startswith(("read_", "write_"))
        }
        self.names |= {"truncated": primitives.truncated, "WireError": WireError, "bytes": bytes}
        self.lines: list[str] = []

    def text(self) -> str:
        return "\n".join(self.lines)

    def add(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def bind(self, prefix: str, value: object) -> str:
        """A name for an object that the source uses."""
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def label(self, name: str) -> str:
        return repr(f"{self.cls.__name__}.{name} (v{self.version})")

    def primitive(self, verb: str, what: str, spec: FieldSpec) -> str:
        nullable = "nullable_" if spec.nullable(self.version) else ""
        return f"{verb}_{'compact_' if self.flexible else ''}{nullable}{what}"

    def runs(self) -> list[tuple[list[tuple[str, FieldSpec]], bool]]:
        """The untagged fields of this version in order; neighbours of fixed size in one group."""
        groups: list[tuple[list[tuple[str, FieldSpec]], bool]] = []
        for name, spec, _ in fields_of(self.cls):
            if not spec.present(self.version) or spec.tag is not None:
                continue
            fixed = spec.kind.fixed and not spec.repeated
            if fixed and groups and groups[-1][1]:
                groups[-1][0].append((name, spec))
            else:
                groups.append(([(name, spec)], fixed))
        return groups

    def tagged(self) -> list[tuple[str, FieldSpec, Callable[[], Any]]]:
        return [item for item in fields_of(self.cls) if item[1].tag is not None and item[1].present(self.version)]


class ReaderSource(_Source):
    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        super().__init__(cls, version, flexible)
        self.add(0, "def read(view, at, end, budget):")
        for group, fixed in self.runs():
            if fixed:
                self._fixed(1, group)
            else:
                self._value(1, *group[0])
        for name, spec, default in fields_of(cls):
            if not spec.present(version) or spec.tag is not None:
                value = default()
                kind = self.bind("default", default) + "()" if isinstance(value, list | Struct) else repr(value)
                self.add(1, f"v_{name} = {kind}")
        arguments = ", ".join(f"v_{name}" for name, _, _ in fields_of(cls))
        struct = self.bind("struct", cls)
        if flexible:
            self._tags()
            self.add(1, f"return {struct}({arguments}{', ' if arguments else ''}unknown_tags=unknown), at")
        else:
            self.add(1, f"return {struct}({arguments}), at")

    def _fixed(self, indent: int, group: list[tuple[str, FieldSpec]]) -> None:
        packing = Packing(">" + "".join(spec.kind.value for _, spec in group))
        self.add(indent, f"if end - at < {packing.size}:")
        self.add(indent + 1, f"raise truncated({self.label(group[0][0])}, at, {packing.size}, end)")
        targets = "".join(f"v_{name}, " for name, _ in group)
        self.add(indent, f"{targets}= {self.bind('unpack', packing.unpack_from)}(view, at)")
        self.add(indent, f"at += {packing.size}")

    def _value(self, indent: int, name: str, spec: FieldSpec) -> None:
        label = self.label(name)
        if spec.repeated:
            self._array(indent, name, spec, label)
        elif spec.struct is not None:
            read = self.bind("read", _reader(spec.struct, self.version, self.flexible))
            if spec.nullable(self.version):
                self.add(indent, f"v_{name} = None")
                self.add(indent, f"there, at = read_presence(view, at, end, {label})")
                self.add(indent, "if there:")
                indent += 1
            self.add(indent, f"v_{name}, at = {read}(view, at, end, budget)")
        elif spec.kind.fixed:
            self._fixed(indent, [(name, spec)])
        else:
            self.add(indent, f"v_{name}, at = {self.primitive('read', spec.kind.value, spec)}(view, at, end, {label})")

    def _array(self, indent: int, name: str, spec: FieldSpec, label: str) -> None:
        element = FieldSpec(spec.kind, struct=spec.struct)
        least = _least_field_size(element, self.version, self.flexible)
        self.add(indent, f"count, at = {self.primitive('read', 'count', spec)}(view, at, end, {label}, {least})")
        if spec.kind.fixed:
            value = f"list({self.bind('unpack', _unpack_many(spec.kind))}(view, at, count)) if count > 0 else []"
            self.add(indent, f"v_{name} = {value}")
            self.add(indent, f"at += {least} * len(v_{name})")
        else:
            self.add(indent, f"budget.take(count, {label}, at)")
            if spec.struct is not None:
                read = self.bind("read", _reader(spec.struct, self.version, self.flexible))
                call = f"{read}(view, at, end, budget)"
            else:
                call = f"{self.primitive('read', spec.kind.value, element)}(view, at, end, {label})"
            self.add(indent, f"v_{name} = []")
            self.add(indent, "for _ in range(count):")
            self.add(indent + 1, f"item, at = {call}")
            self.add(indent + 1, f"v_{name}.append(item)")
        if spec.nullable(self.version):
            self.add(indent, "if count < 0:")
            self.add(indent + 1, f"v_{name} = None")

    def _tags(self) -> None:
        """After the untagged fields; nested values are read with `at` and `end` set to the tag's own bounds."""
        known = self.tagged()
        label = self.label("tags")
        for name, _, default in known:
            self.add(1, f"v_{name} = {self.bind('default', default)}()")
        self.add(1, "unknown = {}")
        self.add(1, "if at < end and view[at] == 0:")
        self.add(2, "at += 1")
        self.add(1, "else:")
        self.add(2, f"tags, after = read_tag_section(view, at, end, {label})")
        self.add(2, f"budget.take(len(tags), {label}, at)")
        self.add(2, "for tag, at, end in tags:")
        for number, (name, spec, _) in enumerate(known):
            self.add(3, f"{'elif' if number else 'if'} tag == {spec.tag}:")
            self._value(4, name, spec)
            self.add(4, "if at != end:")
            self.add(5, f"raise WireError({self.label(name)}, at, f'{{end - at}} bytes follow the tagged field')")
        if known:
            self.add(3, "else:")
        self.add(4 if known else 3, "unknown[tag] = bytes(view[at:end])")
        self.add(2, "at = after")


class WriterSource(_Source):
    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        super().__init__(cls, version, flexible)
        self.add(0, "def write(out, o):")
        for name, spec, default in fields_of(cls):
            if not spec.present(version) and not spec.ignorable:
                self.add(1, f"if o.{name} != {self._constant(default())}:")
                fact = f"set to {{o.{name}!r}}, but version {version} does not carry it"
                self.add(2, f"raise WireError({self.label(name)}, -1, f{fact!r})")
        for group, fixed in self.runs():
            if fixed:
                packing = Packing(">" + "".join(spec.kind.value for _, spec in group))
                values = ", ".join(f"o.{name}" for name, _ in group)
                self.add(1, f"out += {self.bind('pack', packing.pack)}({values})")
            else:
                name, spec = group[0]
                self._value(1, "out", f"o.{name}", spec, self.label(name))
        if flexible:
            self._tags()
        else:
            self.add(1, "if o.unknown_tags:")
            fact = f"version {version} carries no tagged fields"
            self.add(2, f"raise WireError({self.label('unknown_tags')}, -1, {fact!r})")

    def _constant(self, value: object) -> str:
        return self.bind("default", value) if isinstance(value, list | Struct) else repr(value)

    def _value(self, indent: int, out: str, value: str, spec: FieldSpec, label: str) -> None:
        if spec.repeated:
            self._array(indent, out, value, spec, label)
        elif spec.struct is not None:
            write = self.bind("write", _writer(spec.struct, self.version, self.flexible))
            if spec.nullable(self.version):
                self.add(indent, f"write_presence({out}, {value})")
                self.add(indent, f"if {value} is not None:")
                indent += 1
            self.add(indent, f"{write}({out}, {value})")
        elif spec.kind.fixed:
            packing = Packing(">" + spec.kind.value)
            self.add(indent, f"{out} += {self.bind('pack', packing.pack)}({value})")
        else:
            self.add(indent, f"{self.primitive('write', spec.kind.value, spec)}({out}, {value}, {label})")

    def _array(self, indent: int, out: str, value: str, spec: FieldSpec, label: str) -> None:
        self.add(indent, f"items = {value}")
        count = self.primitive("write", "count", spec)
        self.add(indent, f"{count}({out}, None if items is None else len(items), {label})")
        self.add(indent, "if items:")
        if spec.kind.fixed:
            self.add(indent + 1, f"{out} += {self.bind('pack', _pack_many(spec.kind))}(items)")
            return
        element = FieldSpec(spec.kind, struct=spec.struct)
        self.add(indent + 1, "for item in items:")
        self._value(indent + 2, out, "item", element, label)

    def _tags(self) -> None:
        known = self.tagged()
        if not known:
            self.add(1, "if o.unknown_tags:")
            self.add(2, "write_tag_section(out, o.unknown_tags)")
            self.add(1, "else:")
            self.add(2, "out.append(0)")
            return
        self.add(1, "tags = dict(o.unknown_tags)")
        for name, spec, default in known:
            self.add(1, f"if o.{name} != {self._constant(default())}:")
            self.add(2, "part = bytearray()")
            self._value(2, "part", f"o.{name}", spec, self.label(name))
            self.add(2, f"tags[{spec.tag}] = part")
        self.add(1, "write_tag_section(out, tags)")


def _many(kind: Type) -> Callable[[int], Packing]:
    """The packing of so many values of one kind."""
    few = [Packing(">" + _repeat(kind, count)) for count in range(16)]
    return lambda count: few[count] if count < len(few) else Packing(">" + _repeat(kind, count))


def _unpack_many(kind: Type) -> Callable[[Buffer, int, int], tuple[Any, ...]]:
    packing = _many(kind)
    return lambda view, at, count: packing(count).unpack_from(view, at)


def _pack_many(kind: Type) -> Callable[[list[Any]], bytes]:
    packing = _many(kind)
    return lambda items: packing(len(items)).pack(*items)


def _repeat(kind: Type, count: int) -> str:
    return kind.value * count if kind is Type.UUID else f"{count}{kind.value}"

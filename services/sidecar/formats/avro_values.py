"""Avro's primitive and logical types: from a JSON value to the value that Avro writes, and back.

- int, long: written from a whole number within 32 or 64 bits; read as a number.
- float, double: written from a number, or "NaN", "Infinity", "-Infinity"; read as the same.
- bytes, fixed: written from text with one character (U+0000 to U+00FF) per byte, as in Avro's own JSON; read as the
  same.
- decimal: written from text "12.50", or a number, with no more digits than the schema has; read as text, with all
  digits of the scale.
- date: written from text "2026-01-31", or days since 1970; read as a number.
- time-millis, -micros: written from text "10:30:00.5", or the number since midnight; read as a number.
- timestamp-millis, -micros, -nanos: written from text "2026-01-31T10:30:00Z" with its offset, or the number since 1970;
  read as a number.
- local-timestamp-...: written from the same text without an offset, or the number; read as a number.
- uuid: written from text; read as text.

A value that was read can be written again, and gives the same bytes. Any other logical type counts as its base type.
"""

import math
import re
import struct
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from services.sidecar.formats.misfit import MisfitError, expected, shown

Convert = Callable[[Any], Any]
Suits = Callable[[Any], bool]

LARGEST_FLOAT = 3.4028235677973366e38
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TIME = re.compile(r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?")
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2})?)(?:\.(\d{1,9}))?(Z|z|[+-]\d{2}:?\d{2})?")
_EPOCH = date(1970, 1, 1).toordinal()
_DIGITS = {"millis": 3, "micros": 6, "nanos": 9}


@dataclass(frozen=True, slots=True)
class Value:
    """The conversions of one type's values."""

    write: Convert
    """Converts from JSON. MisfitError when the value does not fit."""
    read: Convert | None = None
    """Converts into JSON; None when the value needs no conversion."""
    suits: Suits = lambda value: False
    """Whether the type is for this kind of JSON. This decides among the types of a union."""


def primitive(name: str) -> Value | None:
    """The primitive type of this name; None when no primitive type has the name."""
    return _PRIMITIVES.get(name)


def logical(name: str, base: str, schema: dict[str, Any]) -> Value | None:
    """A logical type of a base type. None when the type is unknown or does not fit the base: then the base counts."""
    match name, base:
        case "date", "int":
            return _number_or_text(_INT, _days)
        case ("time-millis", "int") | ("time-micros", "long"):
            digits = _DIGITS[name.removeprefix("time-")]
            return _number_or_text(_PRIMITIVES[base], lambda text: _since_midnight(text, digits))
        case (("timestamp-millis" | "timestamp-micros" | "timestamp-nanos"), "long"):
            digits = _DIGITS[name.removeprefix("timestamp-")]
            return _number_or_text(_LONG, lambda text: _since_epoch(text, digits, is_local=False))
        case (("local-timestamp-millis" | "local-timestamp-micros" | "local-timestamp-nanos"), "long"):
            digits = _DIGITS[name.removeprefix("local-timestamp-")]
            return _number_or_text(_LONG, lambda text: _since_epoch(text, digits, is_local=True))
        case "decimal", ("bytes" | "fixed"):
            return _decimal(schema)
        case "uuid", "string":
            return Value(lambda value: str(_uuid(value)))
        case "uuid", "fixed" if schema.get("size") == 16:
            return Value(lambda value: _uuid(value).bytes, lambda data: str(uuid.UUID(bytes=data)))
        case _:
            return None


def fixed(size: int) -> Value:
    """Bytes of one length."""

    def write(value: object) -> bytes:
        data = _write_bytes(value)
        if len(data) != size:
            raise MisfitError(f"{len(data)} bytes found, {size} expected")
        return data

    return Value(write, _text_of)


def _null(value: object) -> None:
    if value is not None:
        raise expected("null", value)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise expected("boolean", value)
    return value


def _integer(name: str, bits: int) -> Value:
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def write(value: object) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise expected(name, value)
        if not lowest <= value <= highest:
            raise MisfitError(f"{shown(value)} does not fit {name}, which has {bits} bits")
        return value

    return Value(write, suits=lambda value: type(value) is int and lowest <= value <= highest)


def _floating(name: str, largest: float, read: Convert) -> Value:
    def write(value: object) -> float:
        if type(value) is str and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if type(value) is not float and type(value) is not int:
            raise expected(name, value)
        if not -largest <= value <= largest:
            raise MisfitError(f"{shown(value)} is too large for {name}")
        return float(value)

    return Value(write, read, lambda value: type(value) is float)


def _read_double(value: float) -> float | str:
    return value if math.isfinite(value) else _word(value)


def _read_float(value: float) -> float | str:
    """The shortest number that is the same in 32 bits: 0.1, not 0.10000000149011612."""
    if not math.isfinite(value):
        return _word(value)
    data = struct.pack("f", value)
    return next((short for digits in (7, 8) if struct.pack("f", short := float(f"{value:.{digits}g}")) == data), value)


def _word(value: float) -> str:
    return next(text for text, number in _NOT_FINITE.items() if number == value or (value != value and text == "NaN"))


def _string(value: object) -> str:
    if type(value) is not str:
        raise expected("string", value)
    return value


def _write_bytes(value: object) -> bytes:
    if type(value) is not str:
        raise expected("bytes", value)
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError as error:
        found = f"U+{ord(value[error.start]):04X}"
        raise MisfitError(f"bytes are text with one character of U+0000 to U+00FF for each, {found} found") from None


def _text_of(data: bytes) -> str:
    return data.decode("latin-1")


def _number_or_text(base: Value, parse: Callable[[str], int]) -> Value:
    return Value(lambda value: base.write(parse(value) if type(value) is str else value), None, base.suits)


def _days(text: str) -> int:
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH
    except ValueError:
        raise MisfitError(f"{shown(text)} is no date: 2026-01-31, or a number of days since 1970, expected") from None


def _since_midnight(text: str, digits: int) -> int:
    found = _TIME.fullmatch(text)
    hours, minutes, seconds = (int(part or 0) for part in found.group(1, 2, 3)) if found else (99, 0, 0)
    if found is None or hours > 23 or minutes > 59 or seconds > 59:
        raise MisfitError(f"{shown(text)} is no time: 10:30:00.5, or a number since midnight, expected")
    return _scaled(((hours * 60) + minutes) * 60 + seconds, found[4], digits, text)


def _since_epoch(text: str, digits: int, *, is_local: bool) -> int:
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise MisfitError(f"{shown(text)} is no timestamp: 2026-01-31T10:30:00Z, or a number since 1970, expected")
    day, time, fraction, offset = found.groups()
    if is_local and offset:
        raise MisfitError(f"{shown(text)} has an offset, and a local timestamp has none")
    if not is_local and not offset:
        raise MisfitError(f"{shown(text)} does not say where on earth: end it with Z or an offset such as +02:00")
    try:
        moment = datetime.fromisoformat(f"{day}T{time}{(offset or 'Z').upper()}")
    except ValueError as error:
        raise MisfitError(f"{shown(text)} is no timestamp: {error}") from None
    whole = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return _scaled(whole.days * 86_400 + whole.seconds, fraction, digits, text)


def _scaled(seconds: int, fraction: str | None, digits: int, text: str) -> int:
    given = (fraction or "").rstrip("0")
    if len(given) > digits:
        raise MisfitError(f"{shown(text)} has more than {digits} digits of a second")
    return int(seconds * 10**digits + int(given.ljust(digits, "0")))


def _decimal(schema: dict[str, Any]) -> Value | None:
    precision, scale, size = schema.get("precision"), schema.get("scale", 0), schema.get("size")
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or not precision:
        return None  # Avro's rule: a logical type that is not valid is ignored

    def write(value: object) -> bytes:
        unscaled = _unscaled(_number(value), precision, scale)
        length = size if isinstance(size, int) else unscaled.bit_length() // 8 + 1
        try:
            return unscaled.to_bytes(length, "big", signed=True)
        except OverflowError:
            raise MisfitError(f"{shown(value)} does not fit {length} bytes") from None

    def read(data: bytes) -> str:
        digits = str(abs(unscaled := int.from_bytes(data, "big", signed=True))).rjust(scale + 1, "0")
        sign = "-" if unscaled < 0 else ""
        return f"{sign}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else sign + digits

    return Value(write, read)


def _unscaled(number: Decimal, precision: int, scale: int) -> int:
    """The digits as one whole number. No arithmetic of Decimal, which rounds."""
    if not number:
        return 0
    sign, digits, exponent = number.as_tuple()
    if number.adjusted() >= precision - scale:
        raise MisfitError(f"{shown(str(number))} has more than {precision - scale} digits before the point")
    surplus = -int(exponent) - scale
    if surplus > 0 and (surplus > len(digits) or any(digits[-surplus:])):
        raise MisfitError(f"{shown(str(number))} has more than {scale} digits after the point")
    whole = int("".join(map(str, digits)))
    whole = whole // int(10**surplus) if surplus > 0 else whole * int(10**-surplus)
    return -whole if sign else whole


def _number(value: object) -> Decimal:
    """All digits as the caller wrote them; a float has the digits that Python prints."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise expected("decimal", value)
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise MisfitError(f"{shown(value)} is no decimal: text such as 12.50, or a number, expected")
    return number


def _uuid(value: object) -> uuid.UUID:
    if type(value) is not str:
        raise expected("uuid", value)
    try:
        return uuid.UUID(value)
    except ValueError:
        raise MisfitError(f"{shown(value)} is no UUID") from None


_INT = _integer("int", 32)
_LONG = _integer("long", 64)
_PRIMITIVES = {
    "null": Value(_null, suits=lambda value: value is None),
    "boolean": Value(_boolean, suits=lambda value: type(value) is bool),
    "int": _INT,
    "long": _LONG,
    "float": _floating("float", LARGEST_FLOAT, _read_float),
    "double": _floating("double", sys.float_info.max, _read_double),
    "string": Value(_string, suits=lambda value: type(value) is str),
    "bytes": Value(_write_bytes, _text_of),
}

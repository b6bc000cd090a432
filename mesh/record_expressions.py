"""The language of rules about records: CEL expressions that are true or not of one record.

Theory of operation
1. Names are `key`, `headers`, `value`, `topic`, `partition`, `offset`, `timestamp`, and nothing else. An expression is
   parsed and type-checked once; what is left to go wrong is what depends on the record.
2. A field, header or list element that is not there makes the whole expression not true, unless the rest decides it
   alone (`a || b`, `a && b`). That is no error: records of one topic differ.
3. Wrong types, a division by zero and the like are errors: nobody can say what was meant. `UndecidedError` says why.
4. Work is bounded: 4096 characters, 32 levels, 10,000 steps through lists, regular expressions by RE2. The macros `map`
   and `filter` are left out, because the lists that they build cost the square of their length.

The engine is Google's CEL in C++. It tells what went wrong by text only, which is read here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cel_expr_python import cel

from mesh.rpc import record_rules

MAX_LENGTH = 4096
"""Characters of an expression; far more than a person reads in one go."""
NAMES: Mapping[str, Any] = {
    "key": cel.Type.DYN,
    "headers": cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
    "value": cel.Type.DYN,
    "topic": cel.Type.STRING,
    "partition": cel.Type.INT,
    "offset": cel.Type.INT,
    "timestamp": cel.Type.TIMESTAMP,
}
"""The names that an expression may mention, with their types; a DYN type is known with the record only."""
_WITHOUT_LISTS_BUILT = cel.NewEnvConfigFromYaml("stdlib:\n  exclude_macros: [map, filter]\n")
_BUILDS_LISTS = re.compile(r"\.\s*(?:map|filter)\s*\(")


class InvalidExpressionError(ValueError):
    """A text that is no expression about records: what is wrong, where, and what would be right."""


class UndecidedError(Exception):
    """A record for which an expression is neither true nor not; says why."""

    def __init__(self, reason: str, *, needs: str = "") -> None:
        super().__init__(reason)
        self.needs = needs
        """The name without which it could not be said, if that is why."""


class Facts:
    """The facts about one record, for several expressions: a fact that all of them ask for is read once."""

    __slots__ = ("activation",)

    def __init__(self, known: Mapping[str, object]) -> None:
        self.activation = _ALL.Activation(dict(known))


class Expression:
    """A checked expression, to be asked of many records."""

    def __init__(self, text: str) -> None:
        if not text.strip():
            raise InvalidExpressionError(
                "an expression must say when it is true, for example headers.kind == 'order'; it is empty"
            )
        if len(text) > MAX_LENGTH:
            raise InvalidExpressionError(f"an expression has at most {MAX_LENGTH} characters; this one has {len(text)}")
        self.text = text
        self._program = _compiled(text)
        kind = self._program.return_type().name().lower()
        if kind not in ("bool", "dyn"):
            raise InvalidExpressionError(
                f"{_short(text)} is of type {kind}; it must be true or not: compare it with something, "
                "as in headers.kind == 'order'"
            )
        self.names = frozenset(name for name in NAMES if _speaks_of(text, name))
        """The names that the expression mentions, so that nothing else of a record is read."""

    def __call__(self, known: Mapping[str, object] | Facts) -> bool:
        """Whether it is true of a record. `known` has the record's part of `names`; one that is left out counts only
        where the expression comes to need it. UndecidedError: it can't be said.
        """
        try:
            program = self._program
            result = program.eval(known.activation) if isinstance(known, Facts) else program.eval(data=known)
        except RuntimeError as error:
            raise _undecided(str(error)) from None
        answer = result.value()
        if answer is True or answer is False:
            return bool(answer)
        kind = result.type()
        if kind != cel.Type.ERROR:
            raise UndecidedError(f"it is of type {kind.name().lower()} here, neither true nor false")
        if _means_absent(answer):
            return False
        raise _undecided(answer)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def check_expression(
    text: str, value_format: record_rules.ValueFormat.ValueType = record_rules.VALUE_FORMAT_UNSPECIFIED
) -> None:
    """Refuses a text that is no expression about records of this format: InvalidExpressionError says what and where."""
    if "value" in Expression(text).names and value_format == record_rules.VALUE_FORMAT_BYTES:
        raise InvalidExpressionError(
            f"{_short(text)} speaks of value, which nobody reads where values are BYTES; set another value format"
        )


def _environment(names: Mapping[str, Any]) -> Any:
    return cel.NewEnv(config=_WITHOUT_LISTS_BUILT, variables=dict(names))


_ALL = _environment(NAMES)
_WITHOUT = {left_out: _environment({name: NAMES[name] for name in NAMES if name != left_out}) for left_out in NAMES}


def _compiled(text: str) -> Any:
    try:
        return _ALL.compile(text)
    except RuntimeError as error:
        raise InvalidExpressionError(_explained(text, str(error))) from None


def _speaks_of(text: str, name: str) -> bool:
    """Whether an expression that compiles needs this name: it does not compile where the name is unknown."""
    try:
        _WITHOUT[name].compile(text)
    except RuntimeError:
        return True
    return False


_FAULT = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")


def _explained(text: str, said: str) -> str:
    """CEL's words about a text, with the place of the first fault and, where we know it, the remedy."""
    if _BUILDS_LISTS.search(text):
        return (
            f"{_short(text)}: map and filter build lists, which is not served; ask with exists, all or exists_one, "
            "as in value.items.exists(item, item.count > 2)"
        )
    if "recursion" in said:
        return f"{_short(text)} is nested more than 32 levels deep; say it with fewer parentheses or fields"
    found = _FAULT.search(said)
    if found is None:
        return f"{_short(text)}: {said.splitlines()[0]}"
    line, column, fault = found.groups()
    fault = fault.removesuffix(" [INVALID_ARGUMENT]").removesuffix(" (in container '')")
    place = f"character {column}" if line == "1" else f"line {line}, character {column}"
    way_out = f" (known: {', '.join(NAMES)})" if fault.startswith("undeclared reference") else ""
    return f"{_short(text)}: at {place}: {fault}{way_out}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


_ABSENT = re.compile(
    "Key not found in map|Applying SELECT to non-message type|Invalid container type|Index error"
    "|No matching overloads found : (?:@in|<iter_range>)"
)
"""What CEL says of a field, header or element that is not there, or looked for in what can't have any: null, a text."""
_UNKNOWN_NAME = re.compile(r'No value with name "(\w+)" found')
_WRONG_TYPES = re.compile(r"No matching overloads found : (.+)")
_OTHERS = (
    ("by zero", "it divides by zero"),
    ("budget exceeded", "it takes more than 10,000 steps through lists"),
    ("regular expression", "matches() got a text that is no RE2 expression"),
    ("UTF-8", "it makes a text of bytes that are none"),
    ("overflow", "a number is too large"),
    ("out of", "a number is too large"),
    ("onver", "it converts a value that is not of the form"),
)
"""Parts of what CEL says, and what we say: its words may hold parts of the record."""


def _means_absent(said: str) -> bool:
    return _ABSENT.search(said) is not None


def _undecided(said: str) -> UndecidedError:
    if unknown := _UNKNOWN_NAME.search(said):
        return UndecidedError(f"it needs {unknown[1]}, which is not known", needs=unknown[1])
    if wrong := _WRONG_TYPES.search(said):
        return UndecidedError(f"types that do not go together: {wrong[1]}")
    for part, reason in _OTHERS:
        if part in said:
            return UndecidedError(reason)
    return UndecidedError(f"CEL refuses it: {said.partition(':')[0]}")

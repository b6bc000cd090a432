"""JSON Schema's `pattern` and `patternProperties` in time that grows with the text alone.

Python's `re` backtracks: `^(a+)+$` takes seconds for 26 characters, and no other request is served meanwhile. This
module uses the engine of `jsonschema-rs`, which never backtracks. That engine has no look-around and no
back-references: a schema with such a pattern is refused, and the error names the pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jsonschema_rs
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

MAX_PATTERNS = 4_096
"""The number of patterns that stay compiled."""


class PatternError(ValueError):
    """The engine does not accept a pattern."""


def with_linear_patterns(validator: type[Validator]) -> type[Validator]:
    """The same draft with this engine."""
    keywords = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    extended: type[Validator] = extend(validator, keywords)  # type: ignore[no-untyped-call]
    return extended


def check_patterns(content: Any) -> None:
    """PatternError for the first pattern of a schema, or of a part of it, that this engine does not accept."""
    if isinstance(content, list):
        for part in content:
            check_patterns(part)
    elif isinstance(content, dict):
        if isinstance(pattern := content.get("pattern"), str):
            _matcher(pattern)
        if isinstance(patterns := content.get("patternProperties"), dict):
            for each in patterns:
                _matcher(each)
            if "unevaluatedProperties" in content:
                raise PatternError("unevaluatedProperties beside patternProperties is not supported")
        for name, part in content.items():
            if name not in _DATA:
                check_patterns(part)


_DATA = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are no schemas."""


@lru_cache(MAX_PATTERNS)
def _matcher(pattern: str) -> Callable[[str], bool]:
    try:
        validator = jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except jsonschema_rs.ValidationError:
        raise PatternError(
            f"pattern {pattern!r:.200} is not supported: write it without look-around and back-references"
        ) from None
    return validator.is_valid


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _matcher(pattern)(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, schema in patterns.items():
        matches = _matcher(pattern)
        for name, value in instance.items():
            if matches(name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    named, matchers = schema.get("properties", {}), [_matcher(each) for each in schema.get("patternProperties", {})]
    extras = [name for name in instance if name not in named and not any(matches(name) for matches in matchers)]
    if validator.is_type(allowed, "object"):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        verb = "was" if len(extras) == 1 else "were"
        shown = ", ".join(map(repr, extras))
        yield ValidationError(f"Additional properties are not allowed ({shown} {verb} unexpected)")

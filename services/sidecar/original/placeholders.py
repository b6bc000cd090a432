"""`${key:default}` in the original's files: filled from the environment, else from values.yml, else with the default.

As the original does it (its class ConfigInjection):
- the environment's name of a key is the key in capitals, with `_` for all that is no letter or digit;
- `${key:?text}` is refused with the text when nothing gives the key, and so is `${key}`;
- a list takes the place of all the text around it (a number too, in the original; here it becomes a part of it);
- values of values.yml may have placeholders themselves. `${key:$}` stands for `${key}` as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PLACEHOLDER = re.compile(r"\$\{(.*?)\}")
MAX_DEPTH = 10
"""Values that name values; more is a circle."""
ENCRYPTED = "CRYPT:"
_CANNOT_READ = "encrypted for the original (CRYPT:...), and cannot be read here; give it plain, in the environment"

_TRUE = {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
_FALSE = {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}


class PlaceholderError(ValueError):
    """A placeholder cannot be filled; says which, and never a value."""


class Values:
    """What placeholders are filled with. `asked` are the keys that some placeholder has named."""

    def __init__(self, values: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self._values = values
        self._environment = environment
        self.asked: set[str] = set()

    def fill(self, node: Any) -> Any:
        """The same tree, with every placeholder filled, in keys too."""
        return self._filled(node, 0)

    def gives(self, key: str) -> bool:
        """Whether somebody set the key."""
        return key in self._values or _variable(key) in self._environment

    def _filled(self, node: Any, depth: int) -> Any:
        match node:
            case dict():
                return {str(self._filled(key, depth)): self._filled(value, depth) for key, value in node.items()}
            case list():
                return [self._filled(each, depth) for each in node]
            case str():
                return self._text(node, depth)
            case _:
                return node

    def _text(self, text: str, depth: int) -> Any:
        if text.startswith(ENCRYPTED):
            raise PlaceholderError(f"a value is {_CANNOT_READ}")
        parts: list[str] = []
        end = 0
        for found in PLACEHOLDER.finditer(text):
            value = self._value(found, depth)
            if found[0] == text or isinstance(value, dict | list):
                return value
            parts += [text[end : found.start()], str(value).lower() if isinstance(value, bool) else str(value)]
            end = found.end()
        return "".join([*parts, text[end:]])

    def _value(self, found: re.Match[str], depth: int) -> Any:
        key, separator, default = (part.strip() for part in found[1].partition(":"))
        if depth > MAX_DEPTH:
            raise PlaceholderError(f"{found[0]} leads back to itself in values.yml")
        self.asked.add(key)
        variable = _variable(key)
        given = self._environment.get(variable, self._values.get(key))
        if isinstance(given, str) and given.startswith(ENCRYPTED):
            raise PlaceholderError(f"the value of {key} is {_CANNOT_READ}: {variable}")
        if variable in self._environment:
            return given
        if key in self._values:
            return "" if given is None else self._filled(given, depth + 1)
        if default == "$":
            return f"${{{key}}}"
        if default.startswith("?"):
            raise PlaceholderError(f"{found[0]}: {default[1:]}")
        if not separator:
            raise PlaceholderError(f"{found[0]} is given neither by values.yml nor by the environment ({variable})")
        return _cast(default)


def _variable(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", key).upper()


def _cast(default: str) -> Any:
    """Defaults are texts in the file, and numbers and booleans by their looks."""
    if default in _TRUE or default in _FALSE:
        return default in _TRUE
    for kind in (int, float):
        try:
            return kind(default)
        except ValueError:
            continue
    return default

"""`${key:default}` in the original's files: filled from the environment, else from values.yml, else with the default.

The rules are those of the original (its class ConfigInjection):
- the environment's name of a key is the key in capitals, with `_` for each character that is no letter or digit;
- `${key:?text}` is refused with the text if nothing gives the key; `${key}` is refused too;
- a list replaces all the text around it. In the original, a number does that too; here a number becomes a part of the
  text;
- values of values.yml may have placeholders themselves. `${key:$}` stands for the text `${key}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PLACEHOLDER = re.compile(r"\$\{(.*?)\}")
MAX_DEPTH = 10
"""The depth of values that name values; a deeper chain is a circle."""
ENCRYPTED = "CRYPT:"
_CANNOT_READ = "encrypted for the original (CRYPT:...), and cannot be read here; give it plain, in the environment"

_TRUE = {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
_FALSE = {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}


class PlaceholderError(ValueError):
    """A placeholder cannot be filled. The text names the placeholder, and never shows a value."""


class Values:
    """The values of placeholders. `asked` are the keys that some placeholder has named."""

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
    """The typed value of a default: text that looks like a number or a boolean becomes a number or a boolean."""
    if default in _TRUE or default in _FALSE:
        return default in _TRUE
    for kind in (int, float):
        try:
            return kind(default)
        except ValueError:
            continue
    return default

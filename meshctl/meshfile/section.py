"""A YAML mapping read key by key: every value with its line, every mistake noted and none of them fatal."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from meshctl.meshfile.model import FileError, Finding, Findings

_TAG = "tag:yaml.org,2002:"
_KINDS = {yaml.ScalarNode: "a single value", yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping"}


@dataclass(frozen=True, slots=True)
class Value:
    """A scalar as it is written, with its place."""

    text: str
    line: int
    place: str
    tag: str


class Section:
    """One mapping of the file. Keys that nobody asked for are left for `unknown_keys`."""

    def __init__(self, node: yaml.Node, place: str, findings: Findings) -> None:
        self.line = line_of(node)
        self.place = place
        self._findings = findings
        self._entries: dict[str, yaml.Node] = {}
        self._key_lines: dict[str, int] = {}
        self._asked: set[str] = set()
        if isinstance(node, yaml.MappingNode):
            self._read(node)
        else:
            findings.error(self.line, place, f"expected a mapping (key: value lines), found {_kind(node)}")

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def line_of_key(self, key: str) -> int:
        return self._key_lines.get(key, self.line)

    def place_of(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key

    def error(self, key: str, text: str) -> None:
        self._findings.error(self.line_of_key(key), self.place_of(key), text)

    def value(self, key: str, *, required: bool = False) -> Value | None:
        """The scalar under `key`."""
        node = self._node(key, required)
        if node is None:
            return None
        if not isinstance(node, yaml.ScalarNode) or node.tag == f"{_TAG}null":
            self.error(key, f"expected a single value, found {_kind(node)}")
            return None
        return Value(node.value, line_of(node), self.place_of(key), node.tag.removeprefix(_TAG))

    def integer(self, key: str, *, lowest: int, highest: int) -> int | None:
        """The whole number under `key`, within bounds."""
        value = self.value(key)
        if value is None:
            return None
        try:
            number = int(value.text)
        except ValueError:
            number = lowest - 1
        if not lowest <= number <= highest:
            self.error(key, f"{value.text!r} is not a whole number from {lowest} to {highest}")
            return None
        return number

    def boolean(self, key: str) -> bool:
        """The yes or no under `key`; no when it is not there."""
        value = self.value(key)
        if value is None:
            return False
        if value.tag != "bool":
            self.error(key, f"{value.text!r}: expected true or false")
        return value.text.lower() in ("true", "yes", "on")

    def section(self, key: str) -> Section | None:
        """The mapping under `key`."""
        node = self._node(key, required=False)
        return None if node is None else Section(node, self.place_of(key), self._findings)

    def sections(self, key: str, *, required: bool = False) -> list[Section]:
        """The mappings of the list under `key`."""
        return [Section(node, place, self._findings) for node, place in self._items(key, required)]

    def addresses(self, key: str) -> list[Value]:
        """The single values of the list under `key`, or of a comma-separated text in its place."""
        node = self._entries.get(key)
        if isinstance(node, yaml.ScalarNode):
            value = self.value(key, required=True)
            if value is None:
                return []
            parts = [part.strip() for part in value.text.split(",") if part.strip()]
            return [Value(part, value.line, value.place, "str") for part in parts]
        found: list[Value] = []
        for item, place in self._items(key, required=True):
            if isinstance(item, yaml.ScalarNode):
                found.append(Value(item.value.strip(), line_of(item), place, item.tag.removeprefix(_TAG)))
            else:
                self._findings.error(line_of(item), place, f"expected a single value, found {_kind(item)}")
        return found

    def contents(self, key: str) -> list[tuple[int, str, Any]]:
        """The items of the list under `key` as plain values, each with its line and place."""
        loader = yaml.constructor.SafeConstructor()
        return [(line_of(node), place, loader.construct_document(node)) for node, place in self._items(key, False)]

    def values(self, key: str) -> dict[str, Value]:
        """The mapping under `key` when all its values are single ones."""
        section = self.section(key)
        if section is None:
            return {}
        found = {name: section.value(name) for name in section._entries}
        return {name: value for name, value in found.items() if value is not None}

    def unknown_keys(self) -> Iterator[tuple[str, int, str]]:
        """Keys that nobody asked for: name, line, place."""
        for key in self._entries:
            if key not in self._asked:
                yield key, self._key_lines[key], self.place_of(key)

    def refuse_unknown_keys(self, known: Collection[str]) -> None:
        """An error for each key that is not known, with the nearest that is."""
        for key, line, place in self.unknown_keys():
            self._findings.error(line, place, f"unknown key{did_you_mean(key, known)} (known: {', '.join(known)})")

    def _node(self, key: str, required: bool) -> yaml.Node | None:
        self._asked.add(key)
        node = self._entries.get(key)
        if node is None and required:
            self._findings.error(self.line, self.place, f"{key} is missing")
        return node

    def _items(self, key: str, required: bool) -> list[tuple[yaml.Node, str]]:
        node = self._node(key, required)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.error(key, f"expected a list (lines that begin with '-'), found {_kind(node)}")
            return []
        return [(item, f"{self.place_of(key)}[{index}]") for index, item in enumerate(node.value)]

    def _read(self, node: yaml.MappingNode) -> None:
        own_keys: set[str] = set()
        for key, _value in node.value:
            name = str(key.value)
            if name in own_keys and key.tag != f"{_TAG}merge":
                self._findings.error(line_of(key), self.place_of(name), "this key is there twice; keep one")
            own_keys.add(name)
        yaml.constructor.SafeConstructor().flatten_mapping(node)  # `<<: *anchor`: what is merged in comes first
        for key, value in node.value:
            self._entries[str(key.value)] = value
            self._key_lines[str(key.value)] = line_of(key)


def root(text: str, findings: Findings) -> Section:
    """The document's outermost mapping."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FileError([Finding((mark.line if mark else 0) + 1, "", f"this is not YAML: {error.problem}")]) from error
    except yaml.YAMLError as error:
        raise FileError([Finding(1, "", f"this is not YAML: {error}")]) from error
    if node is None:
        raise FileError([Finding(1, "", "the file is empty")])
    return Section(node, "", findings)


def did_you_mean(word: str, known: Collection[str]) -> str:
    """ "; did you mean ...?", or nothing when no known word is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "nothing" if node.tag == f"{_TAG}null" else repr(node.value)
    return _KINDS[type(node)]

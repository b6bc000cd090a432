"""Counts properties of values and headers, record by record; each task counts, and Spark adds up the counts. No I/O.

The counts contain only names and numbers of the records: the paths of fields, the names of headers. A task keeps a
bounded number of different names, so that objects with data as names don't fill the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from mesh.json_types import type_name
from services.pipeline.profiling.formats import Schemas, look

MOST_NAMES = 2_000
"""Names of fields, and names of headers, in one task."""
DEEPEST = 12
"""The most levels of a document that are counted."""
LONGEST_NAME = 200
"""Characters of a path or a header's name."""


class Kind(Enum):
    """The subject of a tally."""

    FORMAT = "format"
    PARTITION = "partition"
    HEADER = "header"
    TYPE = "type"
    """Values of a type at a path."""
    PRESENT = "present"
    """Records with a value other than null at a path."""
    DOCUMENT = "document"
    """Records with a value that could be parsed."""


class Tally(NamedTuple):
    """The key of a count."""

    kind: str
    name: str = ""
    type: str = ""


class Tallies:
    """Counts of one task."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self.counts: Counter[Tally] = Counter()
        self._names: dict[Kind, set[str]] = {Kind.HEADER: set(), Kind.PRESENT: set()}

    def add(self, partition: int, value: bytes | None, headers: Iterable[str]) -> None:
        """Counts one record."""
        self.counts[Tally(Kind.PARTITION.value, str(partition))] += 1
        for name in set(headers):
            if self._is_kept(Kind.HEADER, name):
                self.counts[Tally(Kind.HEADER.value, name[:LONGEST_NAME])] += 1
        looked = look(value, self._schemas)
        self.counts[Tally(Kind.FORMAT.value, looked.format.value)] += 1
        if looked.document is not None:
            self._add_document(looked.document)

    def _add_document(self, document: Any) -> None:
        self.counts[Tally(Kind.DOCUMENT.value)] += 1
        present: set[str] = set()
        for path, value in fields(document):
            if not self._is_kept(Kind.PRESENT, path):
                continue
            self.counts[Tally(Kind.TYPE.value, path, type_name(value))] += 1
            if value is not None:
                present.add(path)
        for path in present:
            self.counts[Tally(Kind.PRESENT.value, path)] += 1

    def _is_kept(self, kind: Kind, name: str) -> bool:
        names = self._names[kind]
        if name not in names and len(names) < MOST_NAMES:
            names.add(name)
        return name in names


def fields(document: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Each field of the document with its path: names with dots, [] for the elements of a list."""
    if depth == DEEPEST:
        return
    below: Iterable[tuple[str, Any]] = ()
    if isinstance(document, Mapping):
        below = ((f"{path}.{name}" if path else str(name), value) for name, value in document.items())
    elif isinstance(document, list):
        below = ((f"{path}[]", value) for value in document)
    for place, value in below:
        yield place[:LONGEST_NAME], value
        yield from fields(value, place, depth + 1)

"""The table of the README, client by feature, as the test run found it.

Theory of operation. A test names the features that it shows (`@pytest.mark.feature`); its client is that of its fixture
or the marker's. A cell says yes only if every test of it ran and passed. At the end of a run the table is written to
build/client-matrix.md. When every cell is known, the README must say the same: otherwise the run fails, or writes the
README's table itself where MESH_WRITE_MATRIX is set (`make clients`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from tests.clients.registry import ADMINS, CLIENTS, TITLES

README = Path(__file__).parent / "README.md"
BUILT = Path(__file__).parents[2] / "build" / "client-matrix.md"
BEGIN, END = "<!-- the table, written by the test run: begin -->\n", "<!-- the table: end -->\n"
CANNOT = " cannot "
"""In the reason of a skip: the library lacks it, which is no gap of the run."""


class Feature(StrEnum):
    PRODUCE = "produce"
    GROUP = "a group over two clusters"
    PATTERN = "topics by pattern"
    COMMITTED = "read committed"
    TRANSACTIONS = "transactions over two clusters"
    ADMIN = "topics, settings, brokers"
    GROUP_ADMIN = "groups and their offsets"
    RULE_CHANGE = "rule change under load"


OF_OTHERS: Mapping[str, frozenset[Feature]] = {
    "console-tools": frozenset(
        {Feature.PRODUCE, Feature.GROUP, Feature.TRANSACTIONS, Feature.ADMIN, Feature.GROUP_ADMIN}
    ),
    "streams": frozenset({Feature.PRODUCE, Feature.GROUP, Feature.TRANSACTIONS}),
    "mirror-maker": frozenset({Feature.PRODUCE, Feature.GROUP, Feature.ADMIN}),
}
"""What is tested of rows that are no library."""


class Cell(StrEnum):
    YES = "yes"
    NO = "**no**"
    LACKING = "–"
    UNKNOWN = "?"


class Matrix:
    def __init__(self) -> None:
        self._found: defaultdict[tuple[str, str], set[Cell]] = defaultdict(set)

    def add(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """What one phase of a test says of the features that it shows."""
        if report.when != "call" and report.passed:
            return
        for marker in item.iter_markers("feature"):
            client = marker.kwargs.get("client") or _client_of(item)
            for feature in marker.args:
                self._found[client, feature].add(_said(report))

    @property
    def empty(self) -> bool:
        return not self._found

    @property
    def complete(self) -> bool:
        return all(self._cell(row, column) is not Cell.UNKNOWN for row in TITLES for column in Feature)

    def table(self) -> str:
        lines = [["client", *Feature], ["---"] * (1 + len(Feature))]
        lines += [[title, *(self._cell(row, column) for column in Feature)] for row, title in TITLES.items()]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def _cell(self, row: str, column: Feature) -> Cell:
        found = self._found.get((row, column))
        if found is None:
            return Cell.LACKING if _not_offered(row, column) else Cell.UNKNOWN
        for worst in (Cell.NO, Cell.UNKNOWN, Cell.YES):
            if worst in found:
                return worst
        return Cell.LACKING


def _client_of(item: pytest.Item) -> str:
    assert isinstance(item, pytest.Function)
    params = item.callspec.params
    return str(params.get("client") or params.get("admin") or params["name"])


def _said(report: pytest.TestReport) -> Cell:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        return Cell.LACKING if CANNOT in reason else Cell.UNKNOWN
    return Cell.YES if report.passed else Cell.NO


def _not_offered(row: str, column: Feature) -> bool:
    """Where no test is made: clients without an admin client, and tools that are no library."""
    if row not in CLIENTS:
        return column not in OF_OTHERS[row]
    return column in (Feature.ADMIN, Feature.GROUP_ADMIN) and row not in ADMINS


def readme_table() -> str:
    _, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    return rest.partition(END)[0]


def write_readme(table: str) -> None:
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    README.write_text(before + BEGIN + table + END + rest.partition(END)[2], encoding="utf-8")

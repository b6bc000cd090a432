"""The columns of lineage: left to right, within bounds."""

from __future__ import annotations

from services.console.layers import MOST_COLUMNS, MOST_IN_COLUMN, layered


def test_records_flow_from_left_to_right() -> None:
    columns, left_out = layered("orders", [("a", "orders"), ("orders", "billing"), ("billing", "b"), ("b", "invoices")])
    assert columns == [["a"], ["orders"], ["billing"], ["b"], ["invoices"]]
    assert left_out == 0


def test_neighbours_stand_beside_each_other() -> None:
    edges = [("t", "one"), ("t", "two"), ("two", "of two"), ("one", "of one")]
    assert layered("t", edges)[0] == [["t"], ["one", "two"], ["of one", "of two"]]


def test_a_circle_and_a_start_without_edges_have_columns() -> None:
    columns, _ = layered("a", [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")])
    assert sorted(node for column in columns for node in column) == ["a", "b", "c"]
    assert layered("a", []) == ([["a"]], 0)


def test_a_wide_and_a_long_graph_are_bounded() -> None:
    wide, left_out = layered("t", [(f"p{each}", "t") for each in range(1000)])
    assert [len(each) for each in wide] == [MOST_IN_COLUMN, 1]
    assert left_out == 1000 - MOST_IN_COLUMN
    assert len(layered("0", [(str(each), str(each + 1)) for each in range(100)])[0]) == MOST_COLUMNS

"""Where the boxes of a graph stand: left to right, none over another one, within bounds."""

from __future__ import annotations

from services.console.drawing import BOX_HEIGHT, BOX_WIDTH, MOST_COLUMNS, MOST_IN_COLUMN, drawn, line


def test_records_flow_from_left_to_right() -> None:
    found = drawn("orders", [("a", "orders"), ("orders", "billing"), ("billing", "b"), ("b", "invoices")])
    order = sorted(found.places, key=lambda node: found.places[node])
    assert order == ["a", "orders", "billing", "b", "invoices"]
    assert found.left_out == 0


def test_a_circle_and_a_start_without_edges_are_drawn() -> None:
    circle = drawn("a", [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")])
    assert set(circle.places) == {"a", "b", "c"}
    assert set(drawn("a", []).places) == {"a"}


def test_no_box_is_over_another_one_and_all_are_inside() -> None:
    edges = [(f"p{each}", "t") for each in range(7)] + [("t", f"g{each}") for each in range(4)]
    edges += [(f"g{each}", "x") for each in range(4)]
    found = drawn("t", edges)
    corners = list(found.places.values())
    for place, (x, y) in enumerate(corners):
        assert 0 <= x <= found.width - BOX_WIDTH
        assert 0 <= y <= found.height - BOX_HEIGHT
        for other_x, other_y in corners[:place]:
            assert abs(x - other_x) >= BOX_WIDTH or abs(y - other_y) >= BOX_HEIGHT


def test_a_wide_and_a_long_graph_are_bounded() -> None:
    wide = drawn("t", [(f"p{each}", "t") for each in range(1000)])
    assert (len(wide.places), wide.left_out) == (MOST_IN_COLUMN + 1, 1000 - MOST_IN_COLUMN)
    long = drawn("0", [(str(each), str(each + 1)) for each in range(100)])
    assert len(long.places) == MOST_COLUMNS


def test_an_arrow_begins_and_ends_at_its_boxes() -> None:
    assert line((0, 0), (300, 100)).startswith(f"M{BOX_WIDTH} {BOX_HEIGHT // 2}C")
    assert line((0, 0), (300, 100)).endswith(f" 300 {100 + BOX_HEIGHT // 2}")

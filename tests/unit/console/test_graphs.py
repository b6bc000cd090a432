"""Where boxes and lines of a picture stand."""

from __future__ import annotations

from itertools import combinations

from services.console.graphs import LONGEST, Edge, Node, drawn, identity, shortened


def test_boxes_of_a_column_do_not_touch_and_are_inside_the_picture() -> None:
    nodes = [Node(f"{column}-{place}", column, "a", ["b"] * place) for column in range(3) for place in range(5)]
    graph = drawn("x", ("a", "b", "c"), nodes, [])
    for one, other in combinations(graph.boxes, 2):
        apart_x = one.x + one.width <= other.x or other.x + other.width <= one.x
        apart_y = one.y + one.height <= other.y or other.y + other.height <= one.y
        assert apart_x or apart_y
    assert all(each.x >= 0 and each.x + each.width <= graph.width for each in graph.boxes)
    assert all(each.y + each.height <= graph.height for each in graph.boxes)


def test_a_line_begins_and_ends_at_its_boxes_and_needs_both() -> None:
    nodes = [Node("a", 0, "a"), Node("b", 1, "b")]
    graph = drawn("x", ("", ""), nodes, [Edge("a", "b"), Edge("a", "none")])
    [line] = graph.lines
    start, end = graph.boxes
    assert line.path.startswith(f"M{start.x + start.width} {start.y + start.height // 2}")
    assert line.path.endswith(f"{end.y + end.height // 2}h18")


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    assert shortened("apples") == "apples"
    short = shortened("a" * 30 + "-last")
    assert len(short) == LONGEST
    assert short.endswith("-last")


def test_an_id_is_the_same_on_each_load_and_has_no_space() -> None:
    assert identity("a client") == identity("a client") != identity("another")
    assert " " not in identity("a client")

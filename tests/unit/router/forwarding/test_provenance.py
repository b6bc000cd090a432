"""Where records have been: headers that say it, and mirrors in circles that heed it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.judging.records import Headers
from services.router.forwarding.provenance import HEADER, Origin, Stamp, origin_of

CLUSTERS = ("A", "B", "C", "D")


def test_the_first_rule_adds_its_header_behind_the_others() -> None:
    headers = Stamp("apples", "A").stamped([("kind", b"red"), ("kind", None)], 7)
    assert headers == [("kind", b"red"), ("kind", None), (HEADER, b"7 apples A")]
    assert origin_of(headers) == Origin(7, "apples", ("A",))


def test_the_next_rule_says_its_own_offset_and_all_clusters() -> None:
    headers = Stamp("on", "B").stamped([(HEADER, b"7 apples A"), ("kind", b"red")], 3)
    assert headers == [("kind", b"red"), (HEADER, b"3 on A,B")]


def test_a_header_of_the_application_that_is_called_so_stays() -> None:
    for value in (b"home", None, b"x apples A", b"\xff \xff \xff"):
        headers = Stamp("apples", "A").stamped([(HEADER, value)], 7)
        assert headers == [(HEADER, value), (HEADER, b"7 apples A")]
        assert Stamp("on", "B").clusters(headers) == ("A",)


@given(st.sets(st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(CLUSTERS)).filter(lambda way: way[0] != way[1])))
def test_whatever_mirrors_there_are_a_record_comes_to_a_cluster_once_by_each_way_and_never_home(
    ways: set[tuple[str, str]],
) -> None:
    """Mirrors of one topic name between any clusters: A to B to C to A, both ways, all of them."""
    stamps = {(source, target): Stamp(f"{source}-{target}", source) for source, target in ways}
    on: dict[str, list[Headers]] = {cluster: [] for cluster in CLUSTERS}
    on["A"].append([])
    to_read = [("A", on["A"][0])]
    while to_read:  # it ends: that is what is tested
        source, headers = to_read.pop()
        for (origin, target), stamp in stamps.items():
            if origin == source and target not in stamp.clusters(headers):
                copy = stamp.stamped(headers, 0)
                on[target].append(copy)
                to_read.append((target, copy))
    assert on["A"] == [[]], "no record comes home"
    for cluster, copies in on.items():
        paths = [Stamp("", cluster).clusters(headers) for headers in copies]
        assert len(set(paths)) == len(paths)
        assert all(len(set(path)) == len(path) and cluster not in path for path in paths)

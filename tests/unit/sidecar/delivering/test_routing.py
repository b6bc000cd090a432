"""Which path takes a record, by what is in it."""

import orjson
import pytest
from prometheus_client import REGISTRY

from mesh.record_expressions import InvalidExpressionError
from services.sidecar.delivering.routing import ContentRouting, Route
from tests.fixtures.deliveries import deliverable

BY_CONTENT = ContentRouting(
    routes=[
        Route("headers.kind == 'order'", "/orders"),
        Route("value.total > 100", "/large"),
        Route("key == 'bob'", "/bob"),
        Route("topic == 'apples' && offset == 9 && partition == 0", "/nine"),
        Route("timestamp > timestamp('2023-11-14T00:00:00Z') && value.recent", "/recent"),
    ]
)


@pytest.mark.parametrize(
    ("record", "path"),
    [
        (deliverable(1, headers=[("kind", b"order")]), "/orders"),
        (deliverable(1, {"total": 101}, headers=[("kind", b"order")]), "/orders"),
        (deliverable(1, {"total": 101}), "/large"),
        (deliverable(1, orjson.Fragment(b'{"total":101}')), "/large"),
        (deliverable(1, key="bob"), "/bob"),
        (deliverable(9), "/nine"),
        (deliverable(1, {"recent": True}), "/recent"),
        (deliverable(1), ""),
        (deliverable(1, key=None), ""),
    ],
)
def test_the_first_rule_that_is_true_decides(record: object, path: str) -> None:
    assert BY_CONTENT(record) == path  # type: ignore[arg-type]


def test_records_for_which_the_filter_is_not_true_do_not_concern_the_backend() -> None:
    routing = ContentRouting("headers.kind == 'order'", [Route("value.n == 1", "/one")])
    assert routing(deliverable(1)) is None
    assert routing(deliverable(1, headers=[("kind", b"order")])) == "/one"
    assert routing(deliverable(1, {"n": 2}, headers=[("kind", b"order")])) == ""


def test_without_rules_all_go_the_usual_way() -> None:
    assert ContentRouting()(deliverable(1)) == ""


@pytest.mark.parametrize("value", [{"n": "text"}, {"n": 2**70}, orjson.Fragment(b'{"n":%d}' % 2**70)])
def test_where_nobody_can_say_the_record_is_delivered_the_usual_way_and_counted(value: object) -> None:
    def undecided() -> float:
        return REGISTRY.get_sample_value("kafka_mesh_sidecar_undecided_records_total") or 0.0

    before = undecided()
    routing = ContentRouting("value.n - 1 > 0", [Route("value.n * 2 == 4", "/two")])
    assert routing(deliverable(1, value)) == ""
    assert undecided() == before + 2


def test_a_rule_that_is_none_is_named() -> None:
    with pytest.raises(InvalidExpressionError, match="route 2: 'value ==': at character"):
        ContentRouting(routes=[Route("true", "/a"), Route("value ==", "/b")])
    with pytest.raises(InvalidExpressionError, match="filter: "):
        ContentRouting("1 + 1")

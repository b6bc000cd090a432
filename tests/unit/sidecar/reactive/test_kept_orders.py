"""What operators made of a reactive consumer, over a restart."""

import pytest

from services.sidecar.consuming.instance_values import Standing
from services.sidecar.delivering.routing import Route
from services.sidecar.reactive.kept_orders import NOTHING_ORDERED, BrokenStateError, KeptOrders, decoded, encoded
from services.sidecar.reactive.options import Change

ROUTES = (Route("key == 'a'", "/a"),)


def test_all_of_it_comes_back() -> None:
    kept = KeptOrders(
        Standing.PAUSED, Change(("apples",), "", {"routes": ROUTES, "linger_ms": 5, "order_by_key": True})
    )
    assert decoded(encoded(kept)) == kept
    assert decoded(encoded(NOTHING_ORDERED)) == NOTHING_ORDERED


def test_a_drain_that_a_restart_cut_off_is_over() -> None:
    assert decoded(encoded(KeptOrders(Standing.DRAINING))).standing is Standing.DRAINED


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"version": 2}', b'{"version":1,"standing":"odd"}'])
def test_what_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(BrokenStateError):
        decoded(content)


def test_changes_add_up_and_the_last_word_on_topics_counts() -> None:
    first = Change(("apples",), "", {"linger_ms": 5, "filter": "key == 'a'"})
    both = first.followed_by(Change(pattern="p.*", delivery={"linger_ms": 7}))
    assert (both.topics, both.pattern, both.delivery) == ((), "p.*", {"linger_ms": 7, "filter": "key == 'a'"})
    assert first.followed_by(Change(delivery={"linger_ms": 0})).topics == ("apples",)

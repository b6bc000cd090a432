"""How often requests without a context begin a trace."""

import random
from itertools import pairwise

import pytest

from services.gateway.downstream import request_tracing
from services.gateway.downstream.request_tracing import RequestTracing, requests_until_next


class Tracer:
    def __init__(self, rate: float) -> None:
        self.rate = rate


@pytest.mark.parametrize("rate", [0.0, 1e-12, 0.01, 0.3, 1.0])
def test_the_rate_is_the_chance_of_each_request(rate: float) -> None:
    requests = 200_000
    tracing = RequestTracing(Tracer(rate))  # type: ignore[arg-type]  # it asks for the rate alone
    begun = [bool(tracing._traces(None)) for _ in range(requests)]
    deviation = (requests * rate * (1 - rate)) ** 0.5
    assert abs(sum(begun) - requests * rate) <= 6 * deviation
    if 0.2 < rate < 1:  # neighbours are independent of one another
        both = sum(first and second for first, second in pairwise(begun))
        assert abs(both - requests * rate**2) <= 6 * (requests * rate**2) ** 0.5


def test_records_with_contexts_decide_alone() -> None:
    tracing = RequestTracing(Tracer(1.0))  # type: ignore[arg-type]  # as above
    assert tracing._traces(()) == ()


def test_the_smallest_rate_that_there_is_has_a_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_tracing, "random", lambda: 1 - 2**-53)
    assert 0 < requests_until_next(5e-324) < 2**63
    monkeypatch.setattr(request_tracing, "random", random.random)
    assert requests_until_next(1.0) == 1
    assert requests_until_next(0.0) == 0

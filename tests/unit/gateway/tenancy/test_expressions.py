"""RE2 expressions of a tenant, as expressions for full names."""

from __future__ import annotations

import pytest

from services.gateway.tenancy.expressions import compiled, full_expression, own_expression

NAMES = ["orders", "orders-eu", "pears", "shop.orders", "x^y", "a]b", "a)b", "Orders"]
OTHERS = ["orders", "bank.orders", "shop_orders", "shop", "__consumer_offsets", "xshop.orders"]


@pytest.mark.parametrize(
    "expression",
    [
        "orders", "^orders$", "^(orders|pears)$", "(^orders|^pears).*", "ord.*", ".*", "", r"\Aorders\z", "(?i)orders",
        r"\Qorders\E|pears", "[^p].*", "[]a]+b", "[^]]+", "[[:alpha:]]+", r"a\)b", r"a[)]b", "(?:o|p).*", "(?P<n>o).*",
        "o|p|.*-eu", "(a|b)|(^pears)", r"x\^y", r"\Qx^y\E", r"x[\^]y", "(?i:ORDERS)", "^", "$",
    ],
)  # fmt: skip
def test_it_matches_the_same_names_under_the_prefix_and_nothing_else(expression: str) -> None:
    full = full_expression("shop.", expression)
    assert full is not None
    own, all_of_it = compiled(expression), compiled(full)
    for name in NAMES:
        assert bool(all_of_it.fullmatch(f"shop.{name}")) is bool(own.fullmatch(name)), name
    assert not any(all_of_it.fullmatch(other) for other in OTHERS)


@pytest.mark.parametrize(
    "expression", ["a)|(b", "(", "a^b", "a(b|^c)", "(a)^b", "*", r"\Q)|(.*", "[", r"x\Ay", ".*)|(?:.*", "^*"]
)
def test_an_expression_that_could_leave_its_brackets_or_never_match_is_none(expression: str) -> None:
    assert full_expression("shop.", expression) is None


def test_the_tenant_sees_its_own_expression_again() -> None:
    full = full_expression("shop.", "ord.*")
    assert full is not None
    assert own_expression("shop.", full) == "ord.*"
    assert own_expression("shop.", "bank.*") == "bank.*"

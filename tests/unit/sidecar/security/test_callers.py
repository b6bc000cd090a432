"""Scopes, and the topics that they are narrowed to."""

import pytest

from services.sidecar.faults import Fault, FaultKind
from services.sidecar.security.callers import Caller, Topics, literal_beginning

EVERYTHING = Caller.of("shop", ["kafka:w", "kafka:r"])
ORDERS = Caller.of("shop", ["kafka:w:orders.*", "kafka:r:orders.*", "kafka:r:prices"])


@pytest.mark.parametrize("topic", ["orders.new", "payments", "a"])
def test_a_plain_scope_is_for_every_topic(topic: str) -> None:
    EVERYTHING.check_writes([topic])
    EVERYTHING.check_reads([topic], ".*")


def test_a_narrowed_scope_is_for_the_topics_that_it_names() -> None:
    ORDERS.check_writes(["orders.new", "orders.", "orders.a.b"])
    ORDERS.check_reads(["orders.new", "prices"])


@pytest.mark.parametrize("topic", ["orders", "ordersX", "my.orders.new", "payments", "prices", ""])
def test_and_for_no_other(topic: str) -> None:
    with pytest.raises(Fault, match="may not be written to by this token") as refused:
        ORDERS.check_writes(["orders.new", topic])
    assert refused.value.kind is FaultKind.AUTH_TOKEN_SCOPE_MISMATCH


def test_a_narrowed_scope_still_is_the_scope_that_operations_ask_for() -> None:
    ORDERS.check_scopes([frozenset({"kafka:w", "kafka:r"})])


def test_a_scope_that_is_lacking_is_named_in_the_originals_words() -> None:
    caller = Caller.of("shop", ["kafka:r"])
    with pytest.raises(Fault) as refused:
        caller.check_scopes([frozenset({"kafka:w"})])
    text = "Scopes [kafka:r] in authorization token and specification scopes [kafka:w] are not matched"
    assert refused.value.description == text


@pytest.mark.parametrize("scope", ["kafka:write", "kafka", "kafka:w*", "KAFKA:W", "kafka:x:w", "xkafka:w:a"])
def test_scopes_that_only_look_like_ours(scope: str) -> None:
    with pytest.raises(Fault):
        Caller.of("shop", [scope]).check_scopes([frozenset({"kafka:w"})])


@pytest.mark.parametrize("scope", ["kafka:r", "kafka:r:orders.*", "kafka:w", "kafka:w:orders.*"])
def test_one_of_several_scopes_will_do_where_the_operation_says_so(scope: str) -> None:
    Caller.of("shop", [scope]).check_scopes([frozenset({"kafka:r"}), frozenset({"kafka:w"})])


def test_where_no_scope_of_several_is_there_all_are_named() -> None:
    with pytest.raises(Fault, match=r"specification scopes \[kafka:r\] or \[kafka:w\] are not matched"):
        Caller.of("shop", ["kafka:admin"]).check_scopes([frozenset({"kafka:r"}), frozenset({"kafka:w"})])


@pytest.mark.parametrize(
    ("subject", "allowed"),
    [
        ("orders-value", True),
        ("orders-shop.Order", True),
        ("orders-eu-value", False),
        ("orders-eu-key", False),
        ("prices-value", False),
        ("shop.Order", False),
        ("orderskey-value", False),
    ],
)
def test_schemas_are_registered_under_subjects_of_topics_that_may_be_written(subject: str, allowed: bool) -> None:
    caller = Caller.of("shop", ["kafka:w:orders"])
    if allowed:
        caller.check_registers(subject, "orders")
    else:
        with pytest.raises(Fault, match="may not be written"):
            caller.check_registers(subject, "orders")


def test_the_plain_scope_counts_beside_a_narrowed_one() -> None:
    Caller.of("shop", ["kafka:w:orders", "kafka:w"]).check_writes(["payments"])


def test_who_has_no_reading_scope_subscribes_by_the_writing_one() -> None:
    caller = Caller.of("shop", ["kafka:w:orders.*"])
    caller.check_reads(["orders.new"])
    with pytest.raises(Fault):
        caller.check_reads(["payments"])


def test_a_writing_scope_for_all_topics_opens_none_to_a_narrowed_reader() -> None:
    with pytest.raises(Fault, match="may not be read"):
        Caller.of("shop", ["kafka:w", "kafka:r:orders.*"]).check_reads(["payments"])


def test_a_reader_writes_nowhere() -> None:
    with pytest.raises(Fault):
        Caller.of("shop", ["kafka:r"]).check_writes(["orders"])


@pytest.mark.parametrize("topic", ["a?c", "a[b]c", "axc"])
def test_only_the_star_is_a_wildcard(topic: str) -> None:
    assert Topics((topic,)).covers(topic)
    assert Topics(("a?c", "a[x]c")).covers(topic) is (topic == "a?c")


@pytest.mark.parametrize(
    ("expression", "beginning", "is_whole"),
    [
        ("orders", "orders", True),
        (r"orders\.new", "orders.new", True),
        (r"orders\..*", "orders.", False),
        (r"^orders\..*", "orders.", False),
        ("orders.*", "orders", False),
        ("orders*", "order", False),
        ("orders?", "order", False),
        ("orders{0}", "order", False),
        (r"orders\.?", "orders", False),
        ("orders+", "orders", False),
        ("orders|payments", "", False),
        ("orders(|x)", "", False),
        ("(?i)orders", "", False),
        ("[o]rders", "", False),
        ("", "", True),
        (r"\w+", "", False),
        (r"orders\d", "orders", False),
        ("orders$", "orders", False),
    ],
)
def test_what_every_name_that_fits_an_expression_begins_with(expression: str, beginning: str, is_whole: bool) -> None:
    assert literal_beginning(expression) == (beginning, is_whole)


@pytest.mark.parametrize("expression", [r"orders\..*", r"orders\.eu\.[a-z]+", "prices", r"orders\.new"])
def test_expressions_that_fit_only_topics_of_the_token(expression: str) -> None:
    ORDERS.check_reads([], expression)


@pytest.mark.parametrize(
    "expression", [".*", "orders.*", "orders", r"orders\..*|payments", "price.*", r"(orders\..*)?"]
)
def test_expressions_that_may_fit_others(expression: str) -> None:
    with pytest.raises(Fault, match="begin"):
        ORDERS.check_reads([], expression)

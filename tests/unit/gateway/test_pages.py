"""The page of APIs says what the table of handlers says."""

from services.gateway.requests.table import PAGE, with_table


def test_the_table_of_apis_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text) == text, "run `python -m services.gateway.requests.table`"

"""The page of names has the expressions of the code."""

from docs.names import PAGE, written


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run: make reference"

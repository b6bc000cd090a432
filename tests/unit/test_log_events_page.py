"""The page of events in logs has those of the code."""

from docs.log_events import PAGE, written


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run: make reference"

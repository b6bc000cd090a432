"""What a gateway says of itself at its start."""

from structlog.testing import capture_logs

from services.gateway.serving import warn_of_slow_modules


def test_who_runs_without_compiled_walks_is_told_once_and_why() -> None:
    with capture_logs() as lines:
        warn_of_slow_modules("there is no compiled copy")
    (line,) = lines
    assert (line["log_level"], line["reason"]) == ("warning", "there is no compiled copy")


def test_compiled_walks_are_nothing_to_speak_of() -> None:
    with capture_logs() as lines:
        warn_of_slow_modules(None)
    assert lines == []

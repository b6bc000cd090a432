"""The language rule of CONTRIBUTING, as a program checks it."""

from pathlib import Path

import pytest

from tests.plain_english import (
    ROOT,
    Fault,
    Passage,
    findings,
    of_markdown,
    of_proto,
    of_python,
    room_of,
    sentences,
)

HERE = ROOT / "mesh" / "example.py"


def faults(text: str) -> list[Fault]:
    return [finding.fault for finding in findings(Passage(HERE, 1, text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("If a gateway restarts, its routers resend the table.", []),
        ("What to say is decided elsewhere.", [Fault.OPENING]),
        ("Where the log ends, as the last fetch said.", [Fault.OPENING]),
        ("Of one partition.", [Fault.OPENING]),
        ("What does it cost?", []),
        ("Routers are told of it.", [Fault.PRIVATE]),
        ("The topic lives on the cluster.", [Fault.PRIVATE]),
        ("Records are `told` by code.", []),
        (" ".join(["word"] * 35) + ".", []),
        (" ".join(["word"] * 36) + ".", [Fault.LONG]),
    ],
)
def test_a_sentence_is_judged_by_the_rule(text: str, expected: list[Fault]) -> None:
    assert faults(text) == expected


def test_each_sentence_of_a_passage_is_judged_by_itself() -> None:
    text = "The gateway reads 3.5 MB. It sends them on; nothing waits. Does it?"
    assert sentences(text) == ["The gateway reads 3.5 MB.", "It sends them on; nothing waits.", "Does it?"]


def test_python_gives_docstrings_comments_and_messages() -> None:
    source = "\n".join(
        (
            '"""First line."""',
            "LIMIT = 3  # a reason",
            '"""Of the limit."""',
            "# one comment",
            "# over two lines",
            'log.info("a message", key="no message")',
            'raise ValueError(f"{LIMIT} is too much")',
        )
    )
    assert {passage.text for passage in of_python(HERE, source)} == {
        "First line.",
        "a reason",
        "Of the limit.",
        "one comment over two lines",
        "a message",
        "CODE is too much",
    }


@pytest.mark.parametrize("opening", ["\b\n    Examples:", "\b\n    The file is one of", "Examples:", "Example:"])
def test_docstrings_give_no_blocks_of_commands(opening: str) -> None:
    text = f"Sends words.\n\n    {opening}\n      meshctl one\n      meshctl two\n\n    What follows is read.\n"
    source = f'def send() -> None:\n    """{text}    """\n'
    assert [passage.text for passage in of_python(HERE, source)] == ["Sends words.", "What follows is read."]


def test_pages_give_paragraphs_items_and_cells_but_no_code() -> None:
    source = "# Title\n\nA paragraph\nof two lines.\n\n- an item\n- another\n\n```sh\ncode\n```\n| a | b |\n"
    assert [p.text for p in of_markdown(HERE, source)] == ["A paragraph of two lines.", "an item", "another", "a", "b"]


def test_contracts_give_their_comments() -> None:
    source = 'option x = "http://no";\n// A comment\n// of two lines.\nint32 a = 1; // another\n'
    assert [p.text for p in of_proto(HERE, source)] == ["A comment of two lines.", "another"]


@pytest.mark.parametrize(
    ("name", "room"),
    [
        ("services/gateway/settings.py", "services/gateway"),
        ("services/gateway/README.md", "services/gateway"),
        ("proto/mesh/v1/routing.proto", "proto"),
        ("proto/io/prometheus/client/metrics.proto", None),
        ("README.md", "pages"),
        ("tests/README.md", None),
        ("tests/unit/test_plain_english.py", None),
        ("deploy/Dockerfile", None),
    ],
)
def test_a_file_belongs_to_one_room(name: str, room: str | None) -> None:
    assert room_of(ROOT / Path(name)) == room

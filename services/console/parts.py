"""The parts of a page, as values. Views make them, and the templates show them. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Tone(StrEnum):
    """How a text looks, beside what it says."""

    PLAIN = ""
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    QUIET = "quiet"


class Control(StrEnum):
    """The kind of a field in a form."""

    TEXT = "text"
    CHOICE = "choice"
    TICK = "tick"
    HIDDEN = "hidden"
    TIME = "datetime-local"
    AREA = "area"
    """Several lines."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, which may be a link, and may have a share of something done beside it."""

    text: str
    href: str = ""
    tone: Tone = Tone.PLAIN
    done: float | None = None
    """From 0 to 1."""


Cells = Sequence[Cell | str | int]
"""A row."""
Item = tuple[str, Cell | str | int]
"""A name and its value."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns. The first cell of a row is its head."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Cells]
    empty: str
    """The sentence in place of a table without rows."""
    note: str = ""
    more: str = ""
    """The address of the rows that follow."""
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    title: str
    items: Sequence[Item]
    kind: str = "facts"


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence that stands out, with more sentences below."""

    text: str
    tone: Tone = Tone.PLAIN
    items: Sequence[str | Cell] = ()
    kind: str = "notice"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form."""

    name: str
    label: str = ""
    control: Control = Control.TEXT
    value: str = ""
    choices: Sequence[tuple[str, str]] = ()
    """Value and text."""
    help: str = ""
    required: bool = False
    ticked: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """A form. One that changes something is sent by POST, with the key of the browser that got it."""

    title: str
    action: str
    submit: str
    fields: Sequence[Field] = ()
    changes: bool = False
    first: bool = False
    """It stands above what the page found."""
    tone: Tone = Tone.PLAIN
    kind: str = "form"


@dataclass(frozen=True, slots=True)
class Block:
    """A text as it is, with its line breaks, which can be copied."""

    title: str
    text: str
    note: str = ""
    kind: str = "block"


@dataclass(frozen=True, slots=True)
class Stream:
    """A table whose rows come while the page is open: see `views/record_rows.py`."""

    title: str
    columns: Sequence[str]
    source: str
    """The address of the server-sent events."""
    empty: str
    kind: str = "stream"


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text in a picture; `y` is its base line."""

    x: int
    y: int
    text: str


@dataclass(frozen=True, slots=True)
class Box:
    """A node of a picture, in pixels. `about` is its whole text."""

    x: int
    y: int
    width: int
    height: int
    identity: str
    about: str
    texts: Sequence[Text]
    href: str
    tone: Tone

    @property
    def is_cut(self) -> bool:
        """The texts leave something out."""
        return self.about != " ".join(each.text for each in self.texts)


@dataclass(frozen=True, slots=True)
class Line:
    """An edge of a picture."""

    path: str
    about: str
    labels: Sequence[Text]
    tone: Tone
    dashed: bool
    width: float


@dataclass(frozen=True, slots=True)
class Graph:
    """A picture of nodes and edges; see `graphs.py`. A table beside it must say the same."""

    title: str
    width: int
    height: int
    heads: Sequence[Text]
    boxes: Sequence[Box]
    lines: Sequence[Line]
    note: str = ""
    kind: str = "graph"


Part = Table | Facts | Notice | Form | Block | Stream | Graph


@dataclass(frozen=True, slots=True)
class Page:
    """All that a page says."""

    title: str
    parts: Sequence[Part]
    lead: str = ""
    links: Sequence[Cell] = ()
    """Ways from here."""
    live: str = ""
    """The thing that the page follows, if the page updates itself: see `live.py`."""
    status: int = 200


def hidden(name: str, value: str | int) -> Field:
    return Field(name, control=Control.HIDDEN, value=str(value))


def reason() -> Field:
    return Field("reason", "Why", help="For the history.")


@dataclass(frozen=True, slots=True)
class File:
    """Bytes to save, in the place of a page."""

    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Moved:
    """The answer to a change: the browser loads this page next."""

    to: str

"""The request of a viewer, as views see it."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from google.protobuf.timestamp_pb2 import Timestamp

from services.console.control import Caller
from services.console.outcomes import CONSOLE, CallError, Ending
from services.console.parts import Control, Field, File, Form, Moved, Page, Tone, hidden, reason

if TYPE_CHECKING:
    from services.console.records.access import ViewersRecords

PAGE_SIZE = 50
"""Rows of a table: 50 rows are about 20 kB."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The viewer who asks, and the request."""

    caller: Caller
    path: str
    records: ViewersRecords
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parts of the path."""
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def may_change(self) -> bool:
        """Whether the viewer has logged in: control knows the viewer's rights, the console does not."""
        return self.caller.logged_in

    @property
    def page_token(self) -> str:
        return self.query.get("page", "")

    def said(self, name: str) -> str:
        """A field of the form, or of the address."""
        return (self.form.get(name) or self.query.get(name, "")).strip()

    def number(self, name: str) -> int:
        """A whole number that is not negative; 0 if nothing is said. CallError."""
        text = self.said(name)
        if not text:
            return 0
        if not text.isdecimal() or len(text) > 18:
            raise wrong(name, f"{text!r} is no whole number")
        return int(text)

    def more(self, token: str) -> str:
        """The address of the next page of a table; empty on the last page."""
        return here(self.path, **{**self.query, "page": token}) if token else ""


View = Callable[[Ask], Awaitable[Page | Moved | File]]


def here(path: str, **query: str | int) -> str:
    """An address with the part of the query that says something."""
    said = {name: value for name, value in query.items() if value != ""}
    return f"{quote(path)}?{urlencode(said)}" if said else quote(path)


def wrong(name: str, text: str) -> CallError:
    """A field that is not right."""
    return CallError(Ending.REFUSED, "INVALID_ARGUMENT", f"{name}: {text}.", by=CONSOLE)


def time_of(ask: Ask, name: str) -> Timestamp | None:
    """A time in UTC; None if nothing is said. CallError."""
    text = ask.said(name)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise wrong(name, f"{text!r} is no time; expected 2026-11-28T20:00") from None
    made = Timestamp()
    made.FromDatetime((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC))
    return made


def change(title: str, action: str, submit: str, *fields: Field, tone: Tone = Tone.PLAIN) -> Form:
    """A form that changes something: with a request id, so that it can be sent twice; and the reason."""
    own = (hidden("request_id", str(uuid.uuid4())), *fields, reason())
    return Form(title, quote(action), submit, own, changes=True, tone=tone)


def search(action: str, submit: str, *fields: Field, title: str = "Search") -> Form:
    return Form(title, quote(action), submit, fields, first=True)


def choice(name: str, label: str, value: str, *choices: str) -> Field:
    shown = tuple((each, each or "any") for each in choices)
    return Field(name, label, Control.CHOICE, value, shown)


def tick(name: str, label: str, value: str = "") -> Field:
    return Field(name, label, Control.TICK, ticked=bool(value))

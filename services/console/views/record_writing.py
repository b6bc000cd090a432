"""A form that writes a record, as the viewer."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable

from services.console.asking import Ask, choice, here, tick, wrong
from services.console.parts import Control, Field, Form, Moved, Notice, Page, Tone, hidden
from services.console.records.texts import BASE64, TEXT
from services.console.records.writing import New
from services.console.views.records import LEAD, log_in, not_shown


async def new(ask: Ask) -> Page:
    topic = ask.said("topic")
    if why := ask.records.why_not:
        return not_shown(ask, "Write a record", None, why)
    if why_not := ask.records.why_no_writing:
        return Page("Write a record", [Notice(why_not, Tone.WARNING)])
    if not ask.may_change:
        return Page("Write a record", [Notice("Writing needs a log-in.", Tone.WARNING, [log_in(ask)])])
    return Page("Write a record", [_new_form(topic)], lead=LEAD)


async def send(ask: Ask) -> Moved:
    topic, request_id = ask.said("topic"), ask.said("request_id")
    if not topic or not request_id:
        raise wrong("topic", "no topic is named")
    decode = _decoder(ask.said("form") or TEXT)
    key, value = ask.form.get("record_key", ""), ask.form.get("value", "")
    record = New(
        topic,
        decode("record_key", key) if key else None,
        None if ask.said("null") else decode("value", value.replace("\r\n", "\n")),
        _headers(ask.form.get("headers", "")),
        ask.number("partition") if ask.said("partition") else None,
    )
    place = await ask.records.write(record, request_id)
    return Moved(here("/records/one", topic=place.topic, partition=place.partition, offset=place.offset))


def _new_form(topic: str) -> Form:
    return Form(
        "The record",
        "/records/send",
        "Write the record",
        (
            hidden("request_id", str(uuid.uuid4())),
            Field("topic", "Topic", value=topic, required=True),
            Field("partition", "Partition", help="Empty: by the key."),
            Field("record_key", "Key", help="Empty: none."),
            Field("value", "Value", Control.AREA),
            choice("form", "Key and value are", TEXT, TEXT, BASE64),
            tick("null", "The value is null (a tombstone)"),
            Field("headers", "Headers", Control.AREA, help="A line for each: name: value"),
        ),
        changes=True,
    )


def _decoder(form: str) -> Callable[[str, str], bytes]:
    if form not in (TEXT, BASE64):
        raise wrong("form", f"{form!r} is neither {TEXT} nor {BASE64}")

    def decode(name: str, text: str) -> bytes:
        if form == TEXT:
            return text.encode()
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise wrong(name, "this is no base64") from None

    return decode


def _headers(text: str) -> list[tuple[str, bytes]]:
    found = []
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if line.strip():
            if not colon or not name.strip():
                raise wrong("headers", f"{line[:80]!r} is no header; expected name: value")
            found.append((name.strip(), value.strip().encode()))
    return found

"""How an operator names a moment of the past: a revision, or a time."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from mesh.rpc import admin

FORMS = "a revision (41), or a time in RFC 3339 (2026-05-01T02:00:00Z)"


class PastMoment(click.ParamType):
    """`--as-of`: see `FORMS`."""

    name = "when"

    def convert(
        self, value: str | int | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | datetime:
        if not isinstance(value, str):
            return value
        if value.isdecimal():
            return int(value)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither; expected {FORMS}", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no time zone: add Z for UTC, or +02:00", param, ctx)
        return moment


def as_of(moment: int | datetime) -> admin.GetAsOfRequest:
    """The question for it."""
    if isinstance(moment, int):
        return admin.GetAsOfRequest(revision=moment)
    request = admin.GetAsOfRequest()
    request.time.FromDatetime(moment.astimezone(UTC))
    return request

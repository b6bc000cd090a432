"""When an operator wants something to happen: "02:00 UTC", a moment in RFC 3339, or so long from now."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

import click

FORMS = '"02:00 UTC" (the next one), 2026-05-01T02:00:00Z, or +2h, +1h30m, +45s, +7d'

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(?:UTC|Z)", re.IGNORECASE)
_SPAN = re.compile(r"\+(?=.)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.IGNORECASE)
_LONGEST_SPAN = timedelta(days=100_000)
"""Longer ones are refused here, before they are more than a date can be; control has a far smaller bound."""


def moment_of(text: str, now: datetime) -> datetime:
    """The moment that is meant, in UTC; The message of a ValueError names the error. A time without a zone is: whose
    night is it?
    """
    wanted = text.strip()
    if clock := _CLOCK.fullmatch(wanted):
        hour, minute, second = (int(part or 0) for part in clock.groups())
        today = datetime.combine(now.astimezone(UTC), time(hour, minute, second, tzinfo=UTC))
        return today if today > now else today + timedelta(days=1)
    if span := _SPAN.fullmatch(wanted):
        days, hours, minutes, seconds = (min(int(part or 0), 10**9) for part in span.groups())
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if length > _LONGEST_SPAN:
            raise ValueError(f"{wanted} is too far away")
        return now.astimezone(UTC) + length
    return in_utc(wanted)


def in_utc(text: str) -> datetime:
    """A moment in RFC 3339; The message of a ValueError names the error."""
    there = datetime.fromisoformat(text)
    if there.tzinfo is None:
        raise ValueError(f"{text} has no time zone: add Z for UTC, or +02:00")
    return there.astimezone(UTC)


class Since(click.ParamType):
    """`--since`: so long ago, or a moment in RFC 3339."""

    name = "when"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        now = datetime.now(UTC)
        try:
            if _SPAN.fullmatch(f"+{value}"):
                return now - (moment_of(f"+{value}", now) - now)
            return in_utc(value)
        except (ValueError, OverflowError) as error:
            self.fail(
                f"{value!r} is no time: {error}. Possible are 10m, 2h, 1d (ago), 2026-05-01T02:00:00Z", param, ctx
            )


class Moment(click.ParamType):
    """`--at`: see `FORMS`."""

    name = "when"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return moment_of(value, datetime.now(UTC))
        except (ValueError, OverflowError) as error:
            self.fail(f"{value!r} is no time: {error}. Possible are {FORMS}", param, ctx)

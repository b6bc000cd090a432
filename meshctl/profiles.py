"""The profile of a topic's records, in words. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mesh.rpc import profiles
from meshctl.output import age, count, moment

FIELDS = ("FIELD", "TYPES", "MISSING")
MOST_NAMED = 10
UNITS = ("B", "kB", "MB", "GB", "TB")


def report(of: profiles.TopicProfile) -> Iterator[str]:
    """Lines, without the fields."""
    which = "the last" if of.is_sample else "all"
    yield f"{of.topic} on {of.cluster}: {which} {count(of.records, 'record')}, looked at {age(of.time)}"
    if not of.records:
        return
    yield _line("from", f"{moment(of.first_time)} to {moment(of.last_time)}")
    yield _line("values", _sizes(of.values, of.null_values, of.records))
    yield _line("keys", f"{_sizes(of.keys, of.null_keys, of.records)}{_keys(of)}")
    yield _line("headers", _headers(of))
    yield _line("formats", _shares(of.formats, of.records))
    if of.partition_records:
        yield _line("partitions", _partitions(of))


def fields(of: profiles.TopicProfile) -> list[Sequence[str]]:
    return [(each.path, _types(each.types), percent(each.null_rate)) for each in of.fields]


def percent(share: float) -> str:
    """ "0%", "<1%", "37%", ">99%", "100%": what is little is not nothing."""
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{share:.0%}"


def size(number: int) -> str:
    """ "812 B", "3.4 kB"."""
    value, unit = float(number), 0
    while value >= 1000 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{number} B" if unit == 0 else f"{value:.1f} {UNITS[unit]}"


def _line(label: str, text: str) -> str:
    return f"  {label + ':':<12}{text}"


def _sizes(of: profiles.ByteSizes, nulls: int, records: int) -> str:
    missing = f", {percent(nulls / records)} null" if nulls else ""
    if nulls == records:
        return "all null"
    spread = f"{size(of.smallest)} to {size(of.largest)}, {size(of.median)} in the middle, 99% up to {size(of.p99)}"
    return f"{spread}, {size(of.total)} in all{missing}"


def _keys(of: profiles.TopicProfile) -> str:
    if of.null_keys == of.records:
        return ""
    top = f"; the most frequent has {percent(of.top_key_share)} of the records"
    return f"; about {of.distinct_keys} different{top}"


def _headers(of: profiles.TopicProfile) -> str:
    if not of.header_names:
        return "none"
    return f"{_shares(of.header_names, of.records)}; up to {size(of.headers.largest)}"


def _partitions(of: profiles.TopicProfile) -> str:
    by = of.partition_records
    fullest = max(by, key=lambda each: (by[each], -each))
    return f"{len(by)}, {percent(by[fullest] / of.records)} of the records in partition {fullest}"


def _shares(counts: Mapping[str, int], records: int) -> str:
    """ "json 98%, text 2%": the most frequent first."""
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return ", ".join(f"{name} {percent(number / records)}" for name, number in ordered[:MOST_NAMED]) + more


def _types(counts: Mapping[str, int]) -> str:
    """ "string", or "string 98%, number 2%" where a field has several."""
    if len(counts) == 1:
        return next(iter(counts))
    return _shares(counts, sum(counts.values()) or 1)

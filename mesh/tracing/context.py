"""The W3C trace context of a request or a record, read from its headers. No I/O, and no SDK."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
MAX_TRACESTATE_CHARACTERS = 512
"""The length that the W3C recommendation asks a vendor to propagate at least; a longer tracestate is dropped."""
SAMPLED = 1
"""The flag of a trace that its first service chose to record."""

_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-.*)?")
_STATE_MEMBER = re.compile(
    r"[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)


@dataclass(frozen=True, slots=True)
class Trace:
    """A valid W3C trace context; empty for none."""

    parent: str = ""
    state: str = ""

    @classmethod
    def of(cls, parents: list[str], states: list[str]) -> "Trace":
        """The trace context of a request's header lines. An invalid parent voids both; an invalid state only itself."""
        if len(parents) != 1:
            return cls()
        parent = parents[0].strip()
        found = _TRACEPARENT.fullmatch(parent)
        if found is None or (found[1] == "00" and found[4]):
            return cls()
        state = ",".join(states)
        members = [member.strip(" \t") for member in state.split(",")]
        known = all(_STATE_MEMBER.fullmatch(member) for member in members if member)
        if not known or len(members) > 32 or len(state) > MAX_TRACESTATE_CHARACTERS:
            return cls(parent)
        return cls(parent, state.strip())

    @classmethod
    def of_record(cls, headers: Iterable[tuple[str, bytes | str | None]]) -> "Trace":
        """The trace context in a record's headers."""
        found: dict[str, list[str]] = {TRACEPARENT: [], TRACESTATE: []}
        for name, value in headers:
            texts = found.get(name.lower())
            if texts is not None and value is not None:
                texts.append(value if isinstance(value, str) else value.decode(errors="replace"))
        return cls.of(found[TRACEPARENT], found[TRACESTATE])

    def __bool__(self) -> bool:
        return bool(self.parent)

    @property
    def is_sampled(self) -> bool:
        """Whether the first service of the trace chose to record the trace."""
        return bool(self.parent) and bool(int(self.parent[53:55], 16) & SAMPLED)

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits; empty for no trace."""
        return self.parent[3:35]

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits of the span that has this context; empty for no trace."""
        return self.parent[36:52]

    @property
    def headers(self) -> dict[str, str]:
        """The trace context as headers, in their order."""
        named = ((TRACEPARENT, self.parent), (TRACESTATE, self.state))
        return {name: text for name, text in named if text}

    def in_place_of(self, headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
        """A record's headers with this trace context in the place of theirs."""
        kept = [each for each in headers if each[0].lower() not in (TRACEPARENT, TRACESTATE)]
        return [*kept, *((name, text.encode()) for name, text in self.headers.items())]


NO_TRACE = Trace()

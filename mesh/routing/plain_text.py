"""The literal text in a regular expression, by which a look-up among thousands skips expressions that can't match."""

from __future__ import annotations

import re
from functools import lru_cache

NOTHING = ("",)
REMEMBERED = 65536
_TOKEN = re.compile(
    r"""(?P<plain>(?:[A-Za-z0-9_-]|\\[._-])+)
      | (?P<set>\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\])
      | (?P<open>\((?!\?))
      | (?P<close>\))
      | (?P<repeat>[*+?]|\{\d+(?:,\d*)?\})
      | (?P<or>\|)
      | (?P<other>[.^$]|\\[dDwWsSbBAz])
    """,
    re.VERBOSE,
)


@lru_cache(maxsize=REMEMBERED)
def plain_text(pattern: str) -> tuple[str, ...]:
    """Pieces of text that every match has, in their order; the first one is what every match begins with, and may be
    empty. Nothing is said of what is not understood: flags, and what stands in groups or between alternatives.
    """
    pieces = [""]
    depth = at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return NOTHING
        at = token.end()
        kind = token.lastgroup
        if kind == "or" and depth == 0:
            return NOTHING
        if kind == "close" and depth == 0:
            return NOTHING
        depth += (kind == "open") - (kind == "close")
        if kind == "plain" and depth == 0:
            pieces[-1] += token[0].replace("\\", "")
        elif kind == "repeat" and depth == 0:
            if token[0] != "+" and pieces[-1]:  # the last character need not be there, or not just once
                pieces[-1] = pieces[-1][:-1]
            pieces.append("")
        elif pieces[-1] or len(pieces) == 1:
            pieces.append("")
    return tuple(pieces)

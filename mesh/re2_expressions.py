"""RE2 expressions: compiled in silence, kept, and refused with RE2's own reason. No I/O."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2


class InvalidRe2Error(ValueError):
    """The text is no RE2 expression; the message says which text, and why."""


@lru_cache(maxsize=65536)
def compiled(expression: str) -> Any:
    """InvalidRe2Error if this is no expression."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise InvalidRe2Error(f"{expression!r} is not an RE2 expression: {reason}") from None

"""RE2 expressions for a tenant's names, as expressions for full names.

`orders-.*` becomes `\\Qshop.\\E(?:orders-.*)`: a match has the prefix, whatever the expression says. An anchor at the
start of the tenant's expression stands behind the prefix then, where it would never match, so it is left out.
"""

from __future__ import annotations

import re
from typing import Any, Final

import re2

_START: Final = "^"
_OPENS: Final = re.compile(r"\((?:\?(?:[imsU-]*:|P?<\w+>))?")
_FLAGS: Final = re.compile(r"\(\?[imsU-]+\)")


def compiled(expression: str) -> Any:
    """The expression; None if it is none."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error:
        return None


def full_expression(prefix: str, expression: str) -> str | None:
    """The expression for full names; None if it is invalid, or has an anchor in its middle.

    An expression that is valid by itself closes each bracket that it opens, so it can't leave those around it.
    """
    if compiled(expression) is None:
        return None
    inner = _without_start(expression)
    if inner is None or compiled(inner) is None:
        return None
    full = f"{_quoted(prefix)}(?:{inner})"
    return None if compiled(full) is None else full  # a quotation without an end would quote our bracket


def own_expression(prefix: str, expression: str) -> str:
    """The tenant's expression again; an expression that others have set stays as it is."""
    head = f"{_quoted(prefix)}(?:"
    return expression[len(head) : -1] if expression.startswith(head) and expression.endswith(")") else expression


def _quoted(prefix: str) -> str:
    return rf"\Q{prefix}\E"


def _without_start(expression: str) -> str | None:
    """Without anchors where a match begins; None if there is one elsewhere."""
    kept: list[str] = []
    at, begins = 0, True
    around: list[bool] = []
    """For each open bracket, whether it stands where a match begins: then each of its alternatives does."""
    while at < len(expression):
        opening = _FLAGS.match(expression, at)
        if opening is None:
            opening = _OPENS.match(expression, at)
            if opening is not None:
                around.append(begins)
        if opening is not None:
            kept.append(opening.group())
            at = opening.end()
            continue
        if expression.startswith((r"\A", _START), at):
            if not begins:
                return None
            at += 2 if expression[at] == "\\" else 1
            continue
        end = _end_of_item(expression, at)
        begins = expression[at] == "|" and (not around or around[-1])
        if expression[at] == ")" and around:
            around.pop()
        kept.append(expression[at:end])
        at = end
    return "".join(kept)


def _end_of_item(expression: str, at: int) -> int:
    """The place behind a quotation, an escaped character, a class of characters, or a single character."""
    if expression.startswith(r"\Q", at):
        end = expression.find(r"\E", at)
        return len(expression) if end < 0 else end + 2
    if expression[at] == "\\":
        return at + 2
    return _end_of_class(expression, at) if expression[at] == "[" else at + 1


def _end_of_class(expression: str, at: int) -> int:
    """A bracket that closes right behind the one that opens stands for itself."""
    at += 2 if expression.startswith("[^", at) else 1
    first = at
    while at < len(expression):
        if expression[at] == "\\":
            at += 2
        elif expression.startswith("[:", at) and ":]" in expression[at + 2 :]:
            at = expression.index(":]", at + 2) + 2
        elif expression[at] == "]" and at > first:
            return at + 1
        else:
            at += 1
    return at

"""The policy for names: whether a client may create a topic of this name."""

from __future__ import annotations

from collections.abc import Iterable

from mesh.re2_expressions import compiled
from mesh.validation.checks import Breach, Fault, in_rule
from mesh.validation.rule import Rule


def name_breach(rule: Rule, topic: str, principals: Iterable[str]) -> Breach | None:
    """How a client with these principals breaks the rule by creating this topic."""
    if not rule.is_for(principals) or compiled(rule.new_name_regex).fullmatch(topic) is not None:
        return None
    reason = f"the name of a new topic has to match the regular expression {rule.new_name_regex}"
    return Breach(rule, Fault.NAME, in_rule(rule, reason))

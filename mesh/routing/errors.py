"""The errors of rules."""

from __future__ import annotations


class InvalidRuleError(ValueError):
    """A rule that can't be: says which field, what was wrong and what would be right."""

    def __init__(self, field_name: str, message: str) -> None:
        super().__init__(message)
        self.field_name = field_name

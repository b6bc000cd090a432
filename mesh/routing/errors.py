"""The errors of rules, and of the differences between tables."""

from __future__ import annotations


class InvalidRuleError(ValueError):
    """A rule that can't be: says which field, what was wrong and what would be right."""

    def __init__(self, field_name: str, message: str) -> None:
        super().__init__(message)
        self.field_name = field_name


class WrongBaseError(Exception):
    """The delta does not rest on this table."""


class TooManyChangesError(Exception):
    """So many entries differ that the whole table is better."""

"""The filter of a mirror, as a judge of its records."""

from __future__ import annotations

from mesh.judging.records import Record, UnjudgedError
from mesh.judging.sight import Sight, holds
from mesh.judging.values import ValueReader, read_json
from mesh.record_expressions import Expression, UndecidedError


class Filter:
    """Takes the records for which an expression is true; a mirror's values are read as JSON where it speaks of them.

    A value that is not JSON is an obstacle only where the rest of the expression does not decide.
    """

    def __init__(self, text: str, read_value: ValueReader = read_json) -> None:
        """InvalidExpressionError when the text is none."""
        self._expression = Expression(text)
        self._sight = Sight([self._expression], read_value)

    def __call__(self, record: Record) -> bool:
        try:
            return holds(self._expression, self._sight(record))
        except UndecidedError as error:
            raise UnjudgedError(f"the filter can't be applied: {error}") from None

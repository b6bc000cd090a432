"""The properties of clusters as commands take them: one KEY=VALUE behind another."""

from __future__ import annotations

import click


def properties_of(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The callback of a parameter with properties. click.BadParameter: a value is no KEY=VALUE."""
    found: dict[str, str] = {}
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"{value!r}: expected KEY=VALUE")
        found[key.strip()] = text
    return found

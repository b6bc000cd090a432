"""References to secrets, `${env:NAME}` and `${file:/path}`: resolved when a connection is made, never kept, never
logged.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from services.control.domain.errors import InvalidField
from services.control.domain.properties import REFERENCE

LARGEST_FILE = 64 * 1024
"""Bytes; keys and tokens are far smaller, and /dev/zero is no secret."""


def resolved(field: str, value: str) -> str:
    """The value, with a reference replaced by what it refers to. InvalidField names the reference, never the
    content.
    """
    reference = REFERENCE.fullmatch(value)
    if reference is None:
        return value
    kind, _, name = reference[1].partition(":")
    if kind == "env":
        if name not in os.environ:
            raise InvalidField(field, f"{value} refers to an environment variable that control does not have")
        return os.environ[name]
    try:
        with Path(name).open(encoding="utf-8") as file:
            content = file.read(LARGEST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidField(field, f"{value} can't be read by control: {type(error).__name__}") from None
    if len(content) > LARGEST_FILE:
        raise InvalidField(field, f"{value} is larger than {LARGEST_FILE} bytes")
    return content.rstrip("\n")


def resolved_all(field: str, properties: Mapping[str, str]) -> dict[str, str]:
    return {name: resolved(f"{field}[{name}]", value) for name, value in properties.items()}

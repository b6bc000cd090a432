"""References to secrets, `${env:NAME}` and `${file:/path}`: written where a secret is meant, resolved by the process
that makes a connection, never kept in a table, a log line or an error.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

REFERENCE = re.compile(r"\$\{(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^}]+)\}")
LARGEST_FILE = 64 * 1024
"""Bytes; keys and tokens are far smaller, and /dev/zero is no secret."""


class UnresolvedReferenceError(Exception):
    """The secret of a reference is not on this machine. The message names the reference, never a content."""


def resolve(value: str) -> str:
    """The value, with a reference replaced by what it refers to. Reads files: call it from a worker thread."""
    reference = REFERENCE.fullmatch(value)
    if reference is None:
        return value
    kind, _, name = reference[1].partition(":")
    secret = _of_environment(value, name) if kind == "env" else _of_file(value, Path(name))
    if not secret:  # a file that is being written is empty for a moment, and no secret is empty
        raise UnresolvedReferenceError(f"{value} is empty")
    return secret


def _of_environment(reference: str, name: str) -> str:
    if name not in os.environ:
        raise UnresolvedReferenceError(f"{reference} refers to an environment variable that this service does not have")
    return os.environ[name]


def _of_file(reference: str, path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            content = file.read(LARGEST_FILE + 1)
    except UnicodeDecodeError:
        raise UnresolvedReferenceError(f"{reference} is not text in UTF-8") from None
    except OSError as error:
        raise UnresolvedReferenceError(f"{reference} can't be read: {error.strerror or type(error).__name__}") from None
    if len(content) > LARGEST_FILE:
        raise UnresolvedReferenceError(f"{reference} is larger than {LARGEST_FILE} bytes")
    return content.rstrip("\r\n")


def resolve_property(name: str, value: str) -> str:
    """As `resolve`; the error begins with the name of the property."""
    try:
        return resolve(value)
    except UnresolvedReferenceError as error:
        raise UnresolvedReferenceError(f"{name}: {error}") from None

"""References to secrets, resolved for control: an error names the field that refers to a missing secret."""

from __future__ import annotations

from collections.abc import Mapping

from mesh.secret_references import UnresolvedReferenceError, resolve
from services.control.domain.errors import InvalidField


def resolved(field: str, value: str) -> str:
    """The value, with a reference replaced by the secret. InvalidField names the reference, never the
    content.
    """
    try:
        return resolve(value)
    except UnresolvedReferenceError as error:
        raise InvalidField(field, str(error)) from None


def resolved_all(field: str, properties: Mapping[str, str]) -> dict[str, str]:
    return {name: resolved(f"{field}[{name}]", value) for name, value in properties.items()}

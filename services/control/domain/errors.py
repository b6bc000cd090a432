"""Why a command is refused. Each refusal says the fact, the place and the way out; `api/failures.py` turns it into a
gRPC status.
"""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(Exception):  # noqa: N818  (a decision, not a fault)
    """A command that is not carried out."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidField(Refusal):
    """A field of the request can't be what it is."""

    def __init__(self, field: str, description: str) -> None:
        super().__init__(f"{field}: {description}")
        self.field = field
        self.description = description


class Unknown(Refusal):
    """There is no such resource."""

    def __init__(self, resource: str, message: str) -> None:
        super().__init__(message)
        self.resource = resource


class Exists(Refusal):
    """The resource, or the same thing under another name, is there already."""

    def __init__(self, resource: str, message: str) -> None:
        super().__init__(message)
        self.resource = resource


class NotAllowed(Refusal):
    """The state of the mesh does not allow it. `kind` in capitals, `subject` a resource name."""

    def __init__(self, kind: str, subject: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.subject = subject


class Conflict(Refusal):
    """Lost against another change, or given up by the data planes: read again and retry."""

    def __init__(self, reason: str, message: str, facts: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.facts = dict(facts or {})


class Unavailable(Refusal):
    """Something that the command needs is gone for now."""

    def __init__(self, reason: str, message: str, facts: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.facts = dict(facts or {})


class Unfollowed(Refusal):
    """The change stands, and members have not followed within the time that the caller gives; `missing` says how far
    each of them is.
    """

    def __init__(self, revision: int, missing: Mapping[str, str]) -> None:
        said = ", ".join(f"{name} {how}" for name, how in missing.items())
        super().__init__(
            f"revision {revision} is in force, and not all gateways run it in the time of this call: {said}. "
            "They follow as soon as they can; see the status"
        )
        self.revision = revision
        self.missing = dict(missing)

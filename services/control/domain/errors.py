"""The reasons why control refuses a command.

Each refusal says the fact, the place and the remedy; `decisions/answers.py` turns it into a gRPC status.
"""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(Exception):  # noqa: N818  (a decision, not a fault)
    """A command that control does not carry out."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidField(Refusal):
    """A field of the request has a wrong value."""

    def __init__(self, field: str, description: str) -> None:
        super().__init__(f"{field}: {description}")
        self.field = field
        self.description = description


class Unknown(Refusal):
    """The resource does not exist."""

    def __init__(self, resource: str, message: str) -> None:
        super().__init__(message)
        self.resource = resource


class Exists(Refusal):
    """The resource exists already, perhaps under another name."""

    def __init__(self, resource: str, message: str) -> None:
        super().__init__(message)
        self.resource = resource


class NotAllowed(Refusal):
    """The state of the mesh does not allow the command. `kind` is in capitals, `subject` is a resource name."""

    def __init__(self, kind: str, subject: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.subject = subject


class Conflict(Refusal):
    """The command lost against another change, or the data planes made it fail: read again and retry."""

    def __init__(self, reason: str, message: str, facts: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.facts = dict(facts or {})


class Unavailable(Refusal):
    """Something that the command needs is unavailable for now."""

    def __init__(self, reason: str, message: str, facts: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.facts = dict(facts or {})


class Unfollowed(Refusal):
    """The change is in force, but members have not followed within the time that the caller gives.

    `missing` says how far each of them is.
    """

    def __init__(self, revision: int, missing: Mapping[str, str]) -> None:
        said = ", ".join(f"{name} {how}" for name, how in missing.items())
        super().__init__(
            f"revision {revision} is in force, and not all gateways run it in the time of this call: {said}. "
            "They follow as soon as they can; see the status"
        )
        self.revision = revision
        self.missing = dict(missing)

"""Setting and removing rules of protection."""

from __future__ import annotations

from typing import Final

from mesh.routing.policies import PROTECTION_POLICY
from services.control.decisions.policies import Subject
from services.control.domain.protection.rules import PROTECTION

SUBJECT: Final = Subject(
    PROTECTION,
    PROTECTION_POLICY,
    "passes over rules of protection: its gateways would store values in the clear",
)

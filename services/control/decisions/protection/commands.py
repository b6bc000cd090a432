"""Setting and removing rules of protection."""

from __future__ import annotations

from typing import Final

from mesh.routing.codec import TABLE_FORMAT_OF_PROTECTION
from mesh.rpc import protection
from services.control.decisions.policies import Subject
from services.control.domain.protection.rules import PROTECTION

NO_POLICY = protection.ProtectionPolicy()
SUBJECT: Final = Subject(
    PROTECTION,
    TABLE_FORMAT_OF_PROTECTION,
    "passes over rules of protection: its gateways would store values in the clear",
    lambda view: view.state.effective.protection_policy or NO_POLICY,
)

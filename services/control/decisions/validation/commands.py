"""Setting and removing rules of validation."""

from __future__ import annotations

from typing import Final

from mesh.routing.policies import VALIDATION_POLICY
from services.control.decisions.policies import Subject
from services.control.domain.validation.rules import VALIDATION

SUBJECT: Final = Subject(
    VALIDATION,
    VALIDATION_POLICY,
    "passes over rules of validation: its gateways would refuse no records",
)

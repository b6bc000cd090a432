"""Setting and removing rules of validation."""

from __future__ import annotations

from typing import Final

from mesh.routing.codec import TABLE_FORMAT_OF_VALIDATION
from mesh.rpc import validation
from services.control.decisions.policies import Subject
from services.control.domain.validation.rules import VALIDATION

NO_POLICY = validation.ValidationPolicy()
SUBJECT: Final = Subject(
    VALIDATION,
    TABLE_FORMAT_OF_VALIDATION,
    "passes over rules of validation: its gateways would refuse no records",
    lambda view: view.state.effective.validation_policy or NO_POLICY,
)

"""Setting and removing quotas."""

from __future__ import annotations

from typing import Final

from mesh.routing.policies import QUOTA_POLICY
from services.control.decisions.policies import Subject
from services.control.domain.quotas.quotas import QUOTAS

SUBJECT: Final = Subject(
    QUOTAS,
    QUOTA_POLICY,
    "passes over quotas: its gateways would throttle nobody",
)

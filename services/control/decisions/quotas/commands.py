"""Setting and removing quotas."""

from __future__ import annotations

from typing import Final

from mesh.routing.codec import TABLE_FORMAT_OF_QUOTAS
from mesh.rpc import quotas
from services.control.decisions.policies import Subject
from services.control.domain.quotas.quotas import QUOTAS

NO_POLICY = quotas.QuotaPolicy()
SUBJECT: Final = Subject(
    QUOTAS,
    TABLE_FORMAT_OF_QUOTAS,
    "passes over quotas: its gateways would throttle nobody",
    lambda view: view.state.effective.quota_policy or NO_POLICY,
)

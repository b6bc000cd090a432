"""Setting and closing listeners of gateways."""

from __future__ import annotations

from typing import Final

from mesh.routing.policies import LISTENER_POLICY
from services.control.decisions.policies import Subject
from services.control.domain.listeners.listeners import LISTENERS

SUBJECT: Final = Subject(
    LISTENERS,
    LISTENER_POLICY,
    "passes over listeners: its gateways would serve the listeners of their settings",
)

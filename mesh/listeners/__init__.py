"""Listeners of gateways: their security, as settings and control name it. No I/O.

Control decides by it which listeners are possible, and gateways open listeners by it.
"""

from mesh.listeners.listener import MECHANISMS, USUAL_MECHANISMS, Certificates, DecidedListener, Policy, Security
from mesh.listeners.name_rules import NameRule, name_rules

__all__ = [
    "MECHANISMS",
    "USUAL_MECHANISMS",
    "Certificates",
    "DecidedListener",
    "NameRule",
    "Policy",
    "Security",
    "name_rules",
]

"""Validation of records by rule: the conditions, the rules that count for a topic, and the check of a batch. No I/O.

Control decides by it which rules are possible, and gateways check batches by it.
"""

from mesh.validation.checks import Batch, Breach, Fault, Record, breach, record_fault
from mesh.validation.policy import Policy
from mesh.validation.rule import Compression, Content, Key, Mode, Rule, ValueSchema

__all__ = [
    "Batch",
    "Breach",
    "Compression",
    "Content",
    "Fault",
    "Key",
    "Mode",
    "Policy",
    "Record",
    "Rule",
    "ValueSchema",
    "breach",
    "record_fault",
]

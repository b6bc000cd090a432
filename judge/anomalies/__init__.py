"""The anomalies that the judge knows: one function each, from a history to its findings.

The first line of a function's docstring is its rule; those marked with an asterisk are Jepsen's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from judge.anomalies.anomaly import Anomaly, Rule
from judge.anomalies.commits import commits_disagree, lost_commit
from judge.anomalies.cycles import g0, g1c
from judge.anomalies.moves import misrouted, not_continuous, two_writers, wrong_cluster
from judge.anomalies.polls import (
    inner_nonmonotonic_poll,
    inner_poll_skip,
    nonmonotonic_poll,
    poll_skip,
)
from judge.anomalies.recovery import did_not_recover, unexplained_failure
from judge.anomalies.sends import inner_nonmonotonic_send, inner_send_skip, nonmonotonic_send
from judge.anomalies.shares import accepted_again, never_given
from judge.anomalies.transactions import aborted_read, precommitted_read, torn_read, torn_transaction
from judge.anomalies.unmarked import WHY, unmarked, without
from judge.anomalies.writes import altered, duplicate, inconsistent_offsets, lost_write, unseen
from judge.history import History
from judge.logs import located

RULES: tuple[Rule, ...] = (
    Rule("inconsistent-offsets", inconsistent_offsets),
    Rule("duplicate", duplicate),
    Rule("lost-write", lost_write),
    Rule("unseen", unseen),
    Rule("altered", altered),
    Rule("G1a", aborted_read),
    Rule("precommitted-read", precommitted_read),
    Rule("torn-transaction", torn_transaction),
    Rule("torn-read", torn_read),
    Rule("int-poll-skip", inner_poll_skip),
    Rule("int-nonmonotonic-poll", inner_nonmonotonic_poll),
    Rule("poll-skip", poll_skip),
    Rule("nonmonotonic-poll", nonmonotonic_poll),
    Rule("int-send-skip", inner_send_skip, allowed=True),
    Rule("int-nonmonotonic-send", inner_nonmonotonic_send),
    Rule("nonmonotonic-send", nonmonotonic_send),
    Rule("G0", g0),
    Rule("G1c", g1c),
    Rule("wrong-cluster", wrong_cluster),
    Rule("two-writers", two_writers),
    Rule("misrouted", misrouted),
    Rule("not-continuous", not_continuous),
    Rule("lost-commit", lost_commit),
    Rule("commits-disagree", commits_disagree),
    Rule("accepted-again", accepted_again),
    Rule("never-given", never_given),
    Rule("did-not-recover", did_not_recover),
    Rule("unexplained-failure", unexplained_failure),
)


def judged(history: History, rules: tuple[Rule, ...] = RULES) -> Iterator[Anomaly]:
    """All anomalies of a history, the allowed ones marked.

    The history is judged without the records whose transaction Kafka left without a marker. The anomalies that only
    these records show are allowed.
    """
    placed = located(history)
    values = unmarked(placed)
    rest = without(placed, values)
    for rule in rules:
        found = list(rule.found(rest))
        yield from found
        known = {each.key for each in found}
        for anomaly in rule.found(placed) if values else ():
            if anomaly.key not in known:
                yield replace(anomaly, allowed=True, why=WHY)


def rule_named(name: str) -> Rule:
    return next(rule for rule in RULES if rule.name == name)


__all__ = ["RULES", "Anomaly", "Rule", "judged", "rule_named"]

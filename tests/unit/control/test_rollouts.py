"""When a rule change may switch, and who is named when it may not."""

from __future__ import annotations

import pytest

from services.control.domain.members.rollouts import Answer, Phase, Verdict, behind, laggards, verdict

HELD, OLD = Answer(9, Phase.HELD), Answer(5, Phase.APPLIED)
REFUSED = Answer(9, Phase.REFUSED, "too many topics")


@pytest.mark.parametrize(
    ("expected", "answers", "outcome"),
    [
        ([], {}, Verdict.SWITCH),
        (["g1"], {"g1": HELD}, Verdict.SWITCH),
        (["g1", "g2"], {"g1": HELD, "g2": OLD}, Verdict.WAIT),
        (["g1"], {"g1": HELD, "new": OLD}, Verdict.WAIT),
        (["g1", "gone"], {"g1": HELD}, Verdict.WAIT),
        (["g1"], {"g1": Answer(8, Phase.HELD)}, Verdict.WAIT),
        (["g1", "g2"], {"g1": OLD, "g2": REFUSED}, Verdict.ABORT),
        (["g1"], {"g1": Answer(4, Phase.REFUSED)}, Verdict.WAIT),
    ],
)
def test_verdict(expected: list[str], answers: dict[str, Answer], outcome: Verdict) -> None:
    assert verdict(9, expected, answers) is outcome


def test_laggards_are_named_with_what_they_did() -> None:
    assert laggards(9, ["gone", "slow"], {"slow": OLD, "good": HELD}) == {
        "gone": "left while the change was rolled out",
        "slow": "did not hold in time (it runs revision 5)",
    }


def test_a_refusal_is_the_cause_even_where_others_are_late() -> None:
    assert laggards(9, [], {"bad": REFUSED, "slow": OLD}) == {"bad": "refused: too many topics"}


def test_the_operator_goes_on_without_members_by_name() -> None:
    away_and_slow = ["away", "slow"]
    assert verdict(9, ["good", "away", "slow"], {"good": HELD, "slow": OLD}) is Verdict.WAIT
    assert verdict(9, ["good", "away", "slow"], {"good": HELD, "slow": OLD}, away_and_slow) is Verdict.SWITCH
    assert verdict(9, ["good", "bad"], {"good": HELD, "bad": REFUSED}, ["bad"]) is Verdict.SWITCH
    assert laggards(9, ["away", "slow"], {"slow": OLD}, ["away"]).keys() == {"slow"}


def test_who_does_not_run_a_revision_yet() -> None:
    answers = {"new": Answer(10, Phase.APPLIED), "same": Answer(9, Phase.APPLIED), "slow": OLD, "bad": REFUSED}
    assert behind(9, answers, {"away": 12.3, "left out": 99}, ["left out"]) == {
        "away": "has not been heard of for 12 s",
        "bad": "refused revision 9: too many topics",
        "slow": "runs revision 5",
    }
    assert behind(9, {"new": Answer(10, Phase.APPLIED)}, {}) == {}

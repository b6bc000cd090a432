"""The result of one item of an administrative request: an error code and a sentence, from one cluster or several."""

from collections.abc import Container, Mapping
from typing import NamedTuple

from services.gateway.requests.plan import Unreachable
from services.gateway.wire.error_words import worded, words_of
from services.gateway.wire.errors import ErrorCode


class Verdict(NamedTuple):
    code: int
    text: str | None = None


def refusal(code: int, sentence: str) -> Verdict:
    """The gateway's own verdict: the sentence stands behind Kafka's words for the code."""
    return Verdict(code, worded(code, sentence))


DONE = Verdict(ErrorCode.NONE)
LEFT_OUT = refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer left it out")
NO_CLUSTER = refusal(ErrorCode.INVALID_REQUEST, "the mesh has no cluster yet")


def silence(outcome: Unreachable) -> Verdict:
    """The verdict of a cluster that gave no answer."""
    if outcome.unsupported:
        return refusal(
            ErrorCode.UNSUPPORTED_VERSION, f"cluster {outcome.cluster} can't be asked this: {outcome.reason}"
        )
    return refusal(ErrorCode.REQUEST_TIMED_OUT, f"cluster {outcome.cluster} can't be reached: {outcome.reason}")


def joined(
    verdicts: Mapping[str, Verdict], unless_unanimous: Container[int] = (), *, name_one: bool = False
) -> Verdict:
    """One verdict out of those of several clusters: the first error, and a sentence.

    The sentence names the clusters that failed and those that succeeded. A single cluster's verdict stays as it is, and
    gets the cluster's name with `name_one`. Codes in `unless_unanimous` are no errors unless no cluster answers
    anything else.
    """
    if not verdicts:
        return NO_CLUSTER
    failed = {name: verdict for name, verdict in verdicts.items() if verdict.code}
    serious = {name: verdict for name, verdict in failed.items() if verdict.code not in unless_unanimous}
    if not serious:
        if len(failed) < len(verdicts):
            return DONE
        serious = failed
    first = next(iter(serious.values()))
    if len(verdicts) == 1 and not name_one:
        return first
    done = [name for name, verdict in verdicts.items() if not verdict.code]
    text = "; ".join(f"{_without_stop(verdict)} (on {name})" for name, verdict in serious.items())
    return Verdict(first.code, f"{text}; done on {', '.join(done)}" if done else text)


def _without_stop(verdict: Verdict) -> str:
    """The text without its full stop, because more follows."""
    return (verdict.text or words_of(verdict.code)).rstrip(".")

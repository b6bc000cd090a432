"""When control fails over by itself: the order of a standby, the quorum of gateways, and the bounds of the loss."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from google.protobuf.duration_pb2 import Duration

from mesh import durations
from mesh.rpc import standbys
from services.control.domain.errors import InvalidField

LEAST_AFTER_S = 5.0
"""A cluster whose brokers start again is away for some seconds: nobody should lose records for that."""
MOST_S = 86_400.0


def check_policy(spec: standbys.StandbySpec) -> None:
    """Refuses an order that can't be meant."""
    automatic = spec.HasField("fail_over_after")
    if automatic and not LEAST_AFTER_S <= durations.in_s(spec.fail_over_after) <= MOST_S:
        text = (
            f"control fails over by itself after {LEAST_AFTER_S:g} s to {MOST_S:g} s, not {_text(spec.fail_over_after)}"
        )
        raise InvalidField("spec.fail_over_after", text)
    for field in ("max_lost_records", "max_lag"):
        if spec.HasField(field) and not automatic:
            text = "is a bound for a fail-over without an operator; give fail_over_after, too"
            raise InvalidField(f"spec.{field}", text)
    if spec.max_lost_records < 0:
        raise InvalidField("spec.max_lost_records", f"{spec.max_lost_records} is less than 0; 0 means: lose no record")
    if spec.HasField("max_lag") and durations.in_s(spec.max_lag) < 0:
        raise InvalidField("spec.max_lag", f"{_text(spec.max_lag)} is less than 0")


def is_away(unreachable: Mapping[str, float], after_s: float) -> bool:
    """Whether more than half of the reporting gateways have not reached the cluster for so long.

    `unreachable`: gateway -> seconds for which it has not reached the cluster.
    """
    votes = sum(seconds >= after_s for seconds in unreachable.values())
    return 2 * votes > len(unreachable)


def obstacle(spec: standbys.StandbySpec, topics: Collection[standbys.StandbyTopic], lags: Mapping[str, float]) -> str:
    """Why the bounds forbid the fail-over; empty if they do not.

    `topics`: those with copies, with the records that they would lose; `lags`: topic -> seconds for which its copy was
    behind when the cluster was last seen.
    """
    if not spec.HasField("max_lost_records") and not spec.HasField("max_lag"):
        return ""
    for each in topics:
        if not each.partitions:
            return f"nobody knows how far the copy of {each.topic} is"
    lost = sum(each.lag_records for each in topics)
    if spec.HasField("max_lost_records") and lost > spec.max_lost_records:
        return f"the copies lack {lost} acknowledged records, and may lack {spec.max_lost_records}"
    for each in topics if spec.HasField("max_lag") else ():
        if not each.lag_records:
            continue
        lag = lags.get(each.topic)
        if lag is None:
            return f"the copy of {each.topic} lacks {each.lag_records} records, and nobody knows for how long"
        if lag > durations.in_s(spec.max_lag):
            return f"the copy of {each.topic} was {lag:.1f} s behind, and may be {_text(spec.max_lag)} behind"
    return ""


def _text(of: Duration) -> str:
    return f"{durations.in_s(of):g} s"

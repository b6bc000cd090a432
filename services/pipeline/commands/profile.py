"""`kafka-mesh pipeline run profile`: a profile of records, ordered by `serve` or by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import profiles, replays
from services.pipeline.commands.foreground import (
    carry_out_order,
    config_option,
    explaining,
    gateway_properties,
    order_option,
    require_spark,
    session_at_need,
    settings_of,
    stop_signal,
)
from services.pipeline.driver_protocol.orders import Order, Report
from services.pipeline.settings import PipelineSettings

MOST_TYPES_SHOWN = 3


@click.command("profile")
@click.argument("topics", nargs=-1, metavar="[TOPIC...]")
@order_option
@click.option("--sample", type=click.IntRange(min=0), default=0, metavar="N", help="The last N of each partition.")
@click.option("--bootstrap", metavar="HOST:PORT,...", help="The gateway, or any Kafka.")
@config_option
@click.pass_obj
def profile_command(
    gateway: str | None,
    topics: tuple[str, ...],
    order: str | None,
    sample: int,
    bootstrap: str | None,
    config: Path | None,
) -> None:
    """Tell what the records of TOPIC... are like: sizes, keys, formats, fields; never what is in them."""
    settings = settings_of(config)
    require_spark()
    if order:
        carry_out_order(settings, _carry_out)
        return
    if not topics:
        raise click.UsageError("say TOPIC, or --order -")
    from services.pipeline.kafka.source import GATEWAY

    asked = replays.ReplaySpec(
        ranges=[replays.ReplayRange(topic=topic) for topic in topics], profile=replays.ReplayToProfile(sample=sample)
    )
    places = [replays.ReplayPlace(topic=topic, cluster=GATEWAY) for topic in topics]
    by_hand = Order(
        replays.Replay(name="replays/by-hand", spec=asked, places=places),
        {GATEWAY: gateway_properties(settings, bootstrap, gateway)},
    )
    with explaining():
        ended = _carry_out(by_hand, settings, _for_people)
    if ended != replays.REPLAY_STATE_DONE:
        raise click.exceptions.Exit(1)


def _carry_out(order: Order, settings: PipelineSettings, report: Report) -> replays.ReplayState.ValueType:
    from services.pipeline.profiling.job import SparkLooking
    from services.pipeline.profiling.order import Profiling
    from services.pipeline.profiling.registry import RegistryAccess

    credentials = settings.schema_registry_credentials
    registry = RegistryAccess(
        settings.schema_registry_url, "" if credentials is None else credentials.get_secret_value()
    )
    with session_at_need(settings, "profile") as session:
        looking = SparkLooking(session, order.clusters, settings, registry)
        return Profiling(order.replay, looking, report, stop_signal()).run()


def _for_people(report: replays.ReportReplayRequest) -> None:
    for profile in report.profiles:
        for line in lines(profile):
            click.echo(line)
    if report.description and not report.profiles:
        click.echo(report.description, err=True)


def lines(profile: profiles.TopicProfile) -> Iterator[str]:
    """The profile as lines of text."""
    records = profile.records
    yield f"{profile.topic}: {records} records{' (a sample)' if profile.is_sample else ''}"
    if not records:
        return
    if profile.HasField("first_time"):
        yield f"  from {_time(profile.first_time)} to {_time(profile.last_time)}"
    for part in ("keys", "values", "headers"):
        sizes: profiles.ByteSizes = getattr(profile, part)
        spread = f"{sizes.smallest} to {sizes.largest}, half up to {sizes.median}, 99 % up to {sizes.p99}"
        yield f"  {part}: {sizes.total} bytes; {spread}"
    yield f"  keys: about {profile.distinct_keys} different; the most frequent has {profile.top_key_share:.1%}"
    yield f"  without key {profile.null_keys / records:.1%}, without value {profile.null_values / records:.1%}"
    yield f"  partitions: {_shares(profile.partition_records, records)}"
    yield f"  formats: {_shares(profile.formats, records)}"
    if profile.header_names:
        yield f"  headers in: {_shares(profile.header_names, records)}"
    if profile.fields:
        yield "  fields:"
    for field in profile.fields:
        types = sorted(field.types.items(), key=lambda item: -item[1])[:MOST_TYPES_SHOWN]
        yield f"    {field.path}: {', '.join(name for name, _ in types)}; missing in {field.null_rate:.1%}"


def _shares(counts: Mapping[str, int] | Mapping[int, int], records: int) -> str:
    return ", ".join(f"{name} {count / records:.1%}" for name, count in sorted(counts.items()))


def _time(time: Timestamp) -> str:
    return time.ToJsonString()

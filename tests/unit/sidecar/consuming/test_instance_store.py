"""Instances in the state file: all of an instance comes back, and whose word counts when control says otherwise."""

from dataclasses import replace

import orjson
import pytest
import structlog

from services.sidecar.consuming.instance_store import (
    MAX_ENDED,
    BrokenStateError,
    KeptInstance,
    KeptState,
    KnownToControl,
    Ledger,
    Source,
    decoded,
    encoded,
    found_again,
)
from services.sidecar.consuming.instance_values import (
    EndCause,
    GroupProtocol,
    HeaderShape,
    InstanceId,
    InstanceOptions,
    Interest,
    Standing,
)
from services.sidecar.formats import Format
from services.sidecar.records import Partition

PLAIN = InstanceOptions(Format.STRING, Format.JSON, read_timeout=1.0)


def instance(name: str, **members: object) -> KeptInstance:
    return replace(KeptInstance(InstanceId("shop", name), PLAIN), **members)  # type: ignore[arg-type]


A, B, C = (instance(name, interest=Interest(topics=("apples",))) for name in ("a", "b", "c"))
A_CHANGED = replace(A, interest=Interest(topics=("pears",)))


def test_all_of_an_instance_comes_back() -> None:
    options = InstanceOptions(
        key_format=Format.AVRO,
        value_format=Format.PROTOBUF,
        read_timeout=2.5,
        min_bytes=100,
        offset_reset="latest",
        auto_commit=True,
        headers=HeaderShape.LIST,
        group_instance_id="till-1",
        group_protocol=GroupProtocol.CONSUMER,
    )
    instances = (
        instance("topics", interest=Interest(topics=("apples", "pears")), idle_seconds=1.5),
        instance("pattern", interest=Interest(pattern="a.*"), standing=Standing.PAUSED),
        instance("by hand", interest=Interest(partitions=(Partition("apples", 1),)), standing=Standing.DRAINED),
        instance("nothing", options=options),
    )
    ledger = Ledger({instances[0].id}, {InstanceId("shop", "gone"): EndCause.IDLE})
    assert decoded(encoded(instances, ledger)) == KeptState(instances, ledger)


def test_what_this_release_does_not_understand_of_one_instance_harms_no_other() -> None:
    state = orjson.loads(encoded([A, B, C], Ledger()))
    state["instances"][0]["options"]["value_format"] = "telepathy"
    state["instances"][1]["options"]["of_a_later_release"] = 1
    with structlog.testing.capture_logs() as logs:
        assert decoded(orjson.dumps(state)).instances == (B, C)
    assert [line["log_level"] for line in logs] == ["error", "warning"]


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"version":2,"instances":[],"ended":[]}'])
def test_another_file_is_refused(content: bytes) -> None:
    with pytest.raises(BrokenStateError):
        decoded(content)


def again(file: KeptState | None, control: KnownToControl | None) -> dict[KeptInstance, Source]:
    return dict(found_again(file, control))


def test_the_file_is_enough() -> None:
    assert again(KeptState((A, B)), None) == {A: Source.FILE, B: Source.FILE}


def test_control_is_enough() -> None:
    assert again(None, KnownToControl((A, B))) == {A: Source.CONTROL, B: Source.CONTROL}


def test_nobody_knows_anything() -> None:
    assert again(None, None) == {}


def test_what_control_never_heard_of_or_forgot_comes_back() -> None:
    assert again(KeptState((A, B), Ledger(told={A.id})), KnownToControl()) == {A: Source.FILE, B: Source.FILE}


def test_what_ended_while_control_was_away_does_not_come_back() -> None:
    file = KeptState((A,), Ledger(ended={B.id: EndCause.DELETED}))
    assert again(file, KnownToControl((A, B))) == {A: Source.FILE}


def test_what_another_process_of_this_name_made_comes_back() -> None:
    assert again(KeptState((A,)), KnownToControl((A, B))) == {A: Source.FILE, B: Source.CONTROL}


def test_what_another_process_of_this_name_changed_comes_back_as_it_is_now() -> None:
    file = KeptState((A,), Ledger(told={A.id}))
    assert again(file, KnownToControl((A_CHANGED,))) == {A_CHANGED: Source.CONTROL}


def test_what_changed_while_control_was_away_comes_back_as_the_file_has_it() -> None:
    assert again(KeptState((A_CHANGED,)), KnownToControl((A,))) == {A_CHANGED: Source.FILE}


def test_options_that_control_does_not_know_come_from_the_file() -> None:
    kept = replace(A, options=replace(PLAIN, headers=HeaderShape.LIST), idle_seconds=3.0)
    assert again(KeptState((kept,), Ledger(told={A.id})), KnownToControl((A,))) == {kept: Source.FILE}


def test_what_another_sidecar_holds_by_now_does_not_come_back() -> None:
    assert again(KeptState((A, B)), KnownToControl((), frozenset({A.id}))) == {B: Source.FILE}


def test_the_ledger_forgets_the_oldest_ends() -> None:
    ledger = Ledger()
    for number in range(MAX_ENDED + 1):
        ledger.end(InstanceId("shop", str(number)), EndCause.DELETED)
    assert len(ledger.ended) == MAX_ENDED
    assert InstanceId("shop", "0") not in ledger.ended


def test_an_instance_that_is_made_anew_has_not_ended() -> None:
    ledger = Ledger(told={A.id})
    ledger.end(A.id, EndCause.DELETED)
    assert (ledger.told, list(ledger.ended)) == (set(), [A.id])
    ledger.changed(A.id)
    assert ledger == Ledger()

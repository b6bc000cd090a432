"""The pipeline that tests play: it follows its replays over gRPC as one does, and tells of them what it is told to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from mesh.rpc import profiles, replays, replays_grpc
from tests.integration.control.sidecar import ELDER

CALL_S = 30.0
NAME = "p1"
RUNNING, DONE, CANCELLED = replays.REPLAY_STATE_RUNNING, replays.REPLAY_STATE_DONE, replays.REPLAY_STATE_CANCELLED


class PipelineMember:
    """Copies nothing: a copy of it has two partitions of 100 records, and is through at once, or half-way when it
    `holds`. A profile of it finds ten records.
    """

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._replays = replays_grpc.ReplayServiceStub(self._channel)
        self.holds = False

    @contextlib.contextmanager
    def following(self) -> Iterator[PipelineMember]:
        request = replays.FollowReplaysRequest(member=NAME, incarnation=ELDER, destinations=["topic", "profile"])
        call = self._replays.FollowReplays(request)
        thread = threading.Thread(target=self._run, args=[call])
        thread.start()
        try:
            yield self
        finally:
            call.cancel()
            thread.join(CALL_S)
            self._channel.close()

    def _run(self, call: Any) -> None:
        with contextlib.suppress(grpc.RpcError):  # cancelled: the test is over
            for replay in call:
                self._carry_out(replay)

    def _carry_out(self, replay: replays.Replay) -> None:
        spec = replay.spec
        if spec.HasField("profile"):
            found = profiles.TopicProfile(topic=spec.ranges[0].topic, cluster="home", records=10)
            self._report(replay, DONE, 100, profiles=[found])
        elif replay.cancelling:
            self._report(replay, CANCELLED, 50, description="half of it")
        elif spec.dry_run:
            self._report(replay, DONE, 0, planned=37)
        else:
            self._report(replay, RUNNING, 0)
            if self.holds:
                self._report(replay, RUNNING, 50)
            else:
                self._report(replay, DONE, 100, description="all of it")

    def _report(
        self, replay: replays.Replay, state: replays.ReplayState.ValueType, position: int, planned: int | None = None,
        **said: Any,
    ) -> None:  # fmt: skip
        partitions = [
            replays.ReplayPartition(
                topic=replay.spec.ranges[0].topic, partition=number, end_offset=100, position=position,
                records=position, planned=planned,
            )
            for number in (0, 1)
        ]  # fmt: skip
        request = replays.ReportReplayRequest(name=replay.name, member=NAME, state=state, partitions=partitions, **said)
        self._replays.ReportReplay(request, timeout=CALL_S)

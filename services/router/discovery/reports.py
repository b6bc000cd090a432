"""Reports the phases of this router and its data planes to control. The router works just as well while control is
down.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping

import grpc
import structlog

from mesh import durations
from mesh.rpc import acknowledgements, discovery, discovery_grpc, quotas
from mesh.rpc.cancellation import heed_cancellation
from mesh.rpc.replicas import Replicas
from mesh.rpc.tls import RpcTls
from services.router import metrics
from services.router.change import Change
from services.router.discovery.roster import HoldBound

REPORT_INTERVAL = 5.0
"""Seconds after which the router reports everything again, changed or not."""
REST_FOR_EACH = 0.000_05
"""Seconds between two reports, for each data plane in them: about the CPU time that it costs router and control. So
thousands of data planes that connect or answer at the same time make few reports.
"""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 3.0
"""Seconds between attempts to reach control."""

log = structlog.get_logger(__name__)

Call = grpc.aio.StreamStreamCall[discovery.RouterReport, discovery.RouterOrder]


class Reporter:
    """One stream to control, opened again whenever it breaks. `run` until cancelled."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        report: Callable[[], discovery.RouterReport],
        clients: Callable[[], Mapping[str, discovery.ClientReport]],
        acknowledged: Callable[[], Mapping[str, acknowledgements.AcknowledgedLog]],
        divide: Callable[[Mapping[str, quotas.QuotaParts]], None],
        change: Change,
        hold: HoldBound,
        tls: RpcTls | None = None,
    ) -> None:
        self._addresses = addresses
        self._report = report
        self._clients = clients
        self._acknowledged = acknowledged
        self._divide = divide
        self._change = change
        self._hold = hold
        self._tls = tls
        self._connected = False

    async def run(self) -> None:
        """Reports, again and again."""
        pause, said = FIRST_PAUSE, ""
        async with Replicas(self._addresses, self._tls) as control:
            rollouts = discovery_grpc.MemberReportServiceStub(control)
            while True:
                try:
                    await self._converse(rollouts.Report(), control)
                    reason = "it ended the stream"
                except grpc.aio.AioRpcError as error:
                    reason = f"{error.code().name}: {error.details()}"
                heed_cancellation()
                if self._connected:
                    pause, said = FIRST_PAUSE, ""
                self._connected = False
                metrics.control_connected.set(0)
                if reason != said:
                    log.warning(
                        "control does not take reports; the router tries again", address=control.address, reason=reason
                    )
                    said = reason
                await asyncio.sleep(random.uniform(pause / 2, pause))
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _converse(self, call: Call, control: Replicas) -> None:
        """Reports on one stream until it ends, or another control leads."""
        address = control.address
        hearing = asyncio.create_task(self._hear(call, address), name="hear control")
        parts = [hearing, asyncio.create_task(self._write(call)), asyncio.create_task(control.moved())]
        try:
            await asyncio.wait({hearing, parts[2]}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            call.cancel()
            for part in parts:
                part.cancel()
            await asyncio.wait(parts)  # awaited itself, a cancellation of ours would pass for its own
        with contextlib.suppress(asyncio.CancelledError, asyncio.InvalidStateError, grpc.RpcError):
            parts[1].result()
        with contextlib.suppress(asyncio.CancelledError):
            hearing.result()

    async def _hear(self, call: Call, address: str) -> None:
        async for order in call:
            if (milliseconds := durations.whole_ms(order.hold_timeout)) > 0:
                self._hold.milliseconds = milliseconds
            if order.quota_parts:
                self._divide(order.quota_parts)
            if not self._connected:
                log.info("reporting to control", address=address, hold_ms=self._hold.milliseconds)
                metrics.control_connected.set(1)
                self._connected = True

    async def _write(self, call: Call) -> None:
        """Everything first, then each change, and all every few seconds. Changes until the next report are one.

        It has only the clients that changed on this stream: there may be many, and a rollout must not wait for them.
        """
        told: Mapping[str, discovery.ClientReport] = {}
        grown: Mapping[str, acknowledgements.AcknowledgedLog] = {}
        while True:
            report, clients, logs = self._report(), self._clients(), self._acknowledged()
            report.acknowledged.extend(each for topic, each in logs.items() if grown.get(topic) is not each)
            grown = logs
            for name, each in clients.items():
                if told.get(name) is not each:
                    report.clients[name].CopyFrom(each)
            told = clients
            await call.write(report)
            await asyncio.sleep(REST_FOR_EACH * len(report.members))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_INTERVAL):
                    await self._change.wait()

"""A TCP connection that carries Kafka frames: what client connections and upstream connections have in common.

Theory of operation
1. All connections of an event loop receive into one buffer of 1 MiB. The loop asks for the buffer, reads and calls
   `buffer_updated` without interruption. So one buffer is enough, and memory does not grow with connections. Another
   loop may read at the same time, in its own thread: it has a buffer of its own (`LoopShare`).
2. Complete frames are handed to `frame_received` where they lie; they are good during that call alone, unless `owned`.
   An unfinished frame at the end is copied aside. If it has more than `GATHER_FROM_BYTES`, it gets a buffer of its own
   (`memory`). This buffer grows with the bytes that have arrived, never with the claim of a client's size prefix. If
   `frame_begun` finds a `Passage` for the frame, its bytes are handed on as they arrive, and none is kept.
3. `send` keeps its pieces until the present read is done. Then all pieces for one peer leave in one `writev`, past the
   transport. Bytes that the socket does not take are copied to the transport. As long as the transport holds bytes,
   all later pieces go there: order is never lost.
4. Pieces given to `send` may be windows into the receive buffer.
"""

import asyncio
import os
import select
import socket
import threading
from collections.abc import Sequence
from typing import Final, Protocol, cast

from services.gateway.wire.frames import SIZE_BYTES, FrameSplitter
from services.gateway.wire.primitives import Buffer, WireError
from services.gateway.wire.scanner.walks import headers

RECEIVE_BUFFER_BYTES: Final = 1 << 20
GATHER_FROM_BYTES: Final = 64 * 1024
"""Smaller unfinished frames are copied back and forth; that is cheaper than a buffer of their own."""
BEGINNING_BYTES: Final = 1024
"""The bytes of a large frame that must be there before `frame_begun`: they show where the frame goes."""
MAX_PIECES: Final = 512
"""Pieces in one writev; systems allow 1024 (IOV_MAX)."""
WRITE_HIGH_WATER_BYTES: Final = 1 << 20
"""If a peer that does not read has more unsent bytes, the gateway stops reading from their source."""
LAST_WORDS_S: Final = 10.0
"""How long a peer may take to read what was sent before a close."""
_GONE: Final = select.POLLRDHUP | select.POLLHUP | select.POLLERR
KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 120_000}
"""A peer whose machine vanishes is noticed within two minutes: of silence (seconds, seconds, probes), or with bytes on
their way to the peer (milliseconds)."""


class LoopShare:
    """The state that all connections of an event loop share. A loop stays in its thread, so each thread has one."""

    __slots__ = ("buffer", "is_reading", "unflushed")

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.unflushed: list[FrameStream] = []
        """Connections with pieces that were given to `send` since the last flush."""
        self.is_reading = False

    def flush(self) -> None:
        while self.unflushed:
            stream = self.unflushed.pop()
            stream._flush()


class _ThreadsShare(threading.local):
    def __init__(self) -> None:
        self.share = LoopShare()


_of_this_thread = _ThreadsShare()


class Passage(Protocol):
    """Takes the bytes after the beginning of a large frame while they arrive, until none is missing or it is cut."""

    def take(self, piece: memoryview, missing: int) -> None:
        """The next bytes, good as those given to `frame_received`; `missing` bytes come after them."""

    def cut(self, reason: str) -> None:
        """The peer is gone in the middle of the frame."""


class FrameStream:
    """See above. Subclasses implement the hooks at the end."""

    __slots__ = (
        "__weakref__",
        "_direct",
        "_expected",
        "_fd",
        "_filled",
        "_gathered",
        "_least",
        "_missing",
        "_most",
        "_passage",
        "_paused",
        "_pieces",
        "_queued",
        "_rest",
        "_share",
        "_splitter",
        "_transport",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        """In the thread of the event loop that serves the connection."""
        self._share = _of_this_thread.share
        self._splitter = FrameSplitter(max_frame_bytes)
        self._least, self._most = self._splitter.min_frame_bytes, max_frame_bytes
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._direct = True
        self._rest = b""
        """Bytes of an unfinished small frame."""
        self._gathered: bytearray | None = None
        self._filled = 0
        self._expected = 0
        self._passage: Passage | None = None
        self._missing = 0
        """Bytes that the frame on its passage waits for."""
        self._pieces: list[Buffer] = []
        self._queued = False
        self._paused = False

    def bound_frames(self, least: int, most: int) -> None:
        """Frames from here on have `least` to `most` bytes, their size prefix not counted."""
        self._splitter = FrameSplitter(most, least)
        self._least, self._most = least, most

    # --- receiving ---------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._gathered is not None:
            return memoryview(self._gathered)[self._filled :]
        buffer, kept = self._share.buffer, len(self._rest)
        if not kept:
            return buffer
        buffer[:kept] = self._rest
        return buffer[kept:]

    def buffer_updated(self, nbytes: int) -> None:
        share = self._share
        share.is_reading = True
        try:
            if self._gathered is not None:
                self._gather(nbytes)
            elif self._passage is not None:
                self._pass(self._passage, nbytes)
            else:
                end = len(self._rest) + nbytes
                self._rest = b""
                self._walk(share.buffer, 0, end)
        except WireError as error:
            self.bad_frame(error)
        finally:
            share.is_reading = False
            share.flush()

    def _walk(self, buffer: memoryview, start: int, end: int) -> None:
        size = end - start - SIZE_BYTES
        if self._least <= size <= self._most and headers.int32_at(buffer, start) == size:
            self.frame_received(buffer[start:end], False)  # one whole frame, as mostly
            return
        frames, rest, missing = self._splitter.split(buffer, start, end)
        for start, stop in frames:
            if self._fd == -1:
                return
            self.frame_received(buffer[start - SIZE_BYTES : stop], False)
        if rest == end or self._fd == -1:
            return
        if end - rest >= BEGINNING_BYTES and end - rest + missing >= GATHER_FROM_BYTES:
            self._passage = self.frame_begun(buffer[rest:end], missing)
            if self._passage is not None:
                self._missing = missing
                return
            self._expected = end - rest + missing
            self._filled = end - rest
            self._gathered = self.memory(self._expected, self._filled, None)
            self._gathered[: self._filled] = buffer[rest:end]
            self.gathering(len(self._gathered))
        else:
            self._rest = bytes(buffer[rest:end])

    def _pass(self, passage: Passage, nbytes: int) -> None:
        stop = min(nbytes, self._missing)
        self._missing -= stop
        if not self._missing:
            self._passage = None
        passage.take(self._share.buffer[:stop], self._missing)
        if not self._missing:
            self.frame_passed()
        if stop < nbytes and self._fd != -1:
            self._walk(self._share.buffer, stop, nbytes)

    @property
    def still_missing(self) -> int:
        """Bytes of the large frame that has begun to come; 0 when there is none."""
        return self._missing if self._gathered is None else self._expected - self._filled

    @property
    def is_gathering(self) -> bool:
        """Whether an unfinished frame has a buffer of its own."""
        return self._gathered is not None

    def _gather(self, nbytes: int) -> None:
        gathered = cast(bytearray, self._gathered)
        self._filled += nbytes
        if self._filled == self._expected:
            self._gathered = None
            self.gathering(-len(gathered))
            self.frame_received(memoryview(gathered), True)
        elif self._filled == len(gathered):
            grown = self.memory(self._expected, self._filled, gathered)
            grown[: self._filled] = gathered
            self._gathered = grown
            self.gathering(len(grown) - len(gathered))

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- sending -----------------------------------------------------------------------------------------------------

    def send(self, *pieces: Buffer) -> None:
        """Bytes for the peer, in order. Nothing happens when the connection is gone: `lost` was called."""
        if self._fd == -1:
            return
        self._pieces += pieces
        if not self._queued:
            self._queued = True
            self._share.unflushed.append(self)
        if not self._share.is_reading:
            self._share.flush()

    def _flush(self) -> None:
        self._queued = False
        pieces, transport = self._pieces, self._transport
        if self._fd == -1 or transport is None or transport.is_closing():
            pieces.clear()
            return
        if not pieces:
            return
        if not self._direct or transport.get_write_buffer_size():
            transport.write(b"".join(pieces))
            pieces.clear()
        elif len(pieces) == 1:  # as mostly
            piece = pieces.pop()
            sent = self._sent((piece,))
            if sent != len(piece) and sent is not None:
                transport.write(bytes(memoryview(piece)[sent:]))
        else:
            self._pieces = []
            self._flush_several(transport, pieces)

    def _flush_several(self, transport: asyncio.Transport, pieces: list[Buffer]) -> None:
        at = 0
        while at < len(pieces):
            sent = self._sent(pieces if len(pieces) <= MAX_PIECES else pieces[at : at + MAX_PIECES])
            if sent is None:
                return
            for piece in pieces[at : at + MAX_PIECES]:
                if sent < len(piece):  # the socket takes no more
                    transport.write(b"".join((memoryview(piece)[sent:], *pieces[at + 1 :])))
                    return
                sent -= len(piece)
                at += 1

    def _sent(self, pieces: Sequence[Buffer]) -> int | None:
        """How many bytes of these the socket has taken, in one system call; None if the connection is gone."""
        try:
            return os.write(self._fd, pieces[0]) if len(pieces) == 1 else os.writev(self._fd, pieces)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.abort(f"sending failed: {error}")
            return None

    @property
    def unsent_bytes(self) -> int:
        """The bytes that the peer has not taken from us yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def peer_is_gone(self) -> bool:
        """Whether the peer has closed its side, asked of the system: it tells nothing of it while reading is paused."""
        poll = select.poll()
        poll.register(self._fd, _GONE)
        return any(found & _GONE for _, found in poll.poll(0))

    @property
    def congested(self) -> bool:
        return self._paused

    # --- the connection's life ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("socket")
        self._direct = transport.get_extra_info("sslcontext") is None
        if connection.family != socket.AF_UNIX:
            _keep_alive(connection)
        self._fd = connection.fileno()
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self.made()

    def pause_writing(self) -> None:
        self._paused = True
        self.congestion(True)

    def resume_writing(self) -> None:
        self._paused = False
        self.congestion(False)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(str(exc) if exc else "closed by the peer")

    @property
    def is_open(self) -> bool:
        return self._fd != -1

    def close(self, reason: str) -> None:
        """Send what is waiting, then close."""
        if self._transport is not None and self._fd != -1:
            self._flush()
            self._transport.close()
            if self.unsent_bytes:
                asyncio.get_running_loop().call_later(LAST_WORDS_S, self._transport.abort)
        self._ended(reason)

    def abort(self, reason: str) -> None:
        """Close at once, whatever is waiting."""
        if self._transport is not None and self._fd != -1:
            self._transport.abort()
        self._ended(reason)

    def _ended(self, reason: str) -> None:
        if self._fd == -1:
            return
        self._fd = -1
        self._pieces.clear()
        if self._gathered is not None:
            self.gathering(-len(self._gathered))
            self._gathered = None
        passage, self._passage, self._missing = self._passage, None, 0
        self.lost(reason)
        if passage is not None:
            passage.cut(reason)

    # --- for subclasses ----------------------------------------------------------------------------------------------

    def made(self) -> None:
        """The connection is up."""

    def frame_received(self, frame: memoryview, owned: bool) -> None:
        """A whole frame, with its size prefix. Unless `owned`, it is good until this returns."""
        raise NotImplementedError

    def frame_begun(self, beginning: memoryview, missing: int) -> Passage | None:
        """A large frame has begun to come: `beginning`, good as in `frame_received`, and `missing` more bytes.
        The frame is handed over as a whole, unless a passage for the rest is returned. The subclass that returns a
        passage has taken the beginning."""
        return None

    def frame_passed(self) -> None:
        """A passage has taken all of its frame."""

    def memory(self, expected: int, filled: int, before: bytearray | None) -> bytearray:
        """Memory for more than `filled` bytes of an unfinished frame that claims `expected` bytes. `before` is the
        memory that has become too small."""
        return bytearray(min(expected, max(2 * filled, RECEIVE_BUFFER_BYTES)))

    def gathering(self, delta: int) -> None:
        """Memory for an unfinished frame grew or shrank by `delta` bytes."""

    def congestion(self, congested: bool) -> None:
        """The peer stopped reading our bytes, or reads again."""

    def bad_frame(self, error: WireError) -> None:
        """The peer sent bytes that can't be a frame."""
        self.abort(str(error))

    def lost(self, reason: str) -> None:
        """The connection is gone; called once."""


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        if hasattr(socket, option):  # else the system's own times hold
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

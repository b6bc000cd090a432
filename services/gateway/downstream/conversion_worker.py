"""The other process of `conversions`: reads a function and its arguments, writes the result, until its input ends.

Both ways a message is its length (8 bytes) and a pickle. The only peer is the gateway that started this process.
"""

import os
import pickle
import resource
import signal
import sys
from struct import Struct as Packing
from typing import BinaryIO

LENGTH = Packing(">q")
MOST_MEMORY = 2 * 1024**3
"""Bytes of address space. 100 MiB of records take half a GiB. A value that is a bomb as an object gets no more."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all of a terminal; it is the gateway that ends us
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (MOST_MEMORY if hard == resource.RLIM_INFINITY else min(MOST_MEMORY, hard), hard)
    )
    source, target = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # printed text must not get into an answer
    while (request := _read(source)) is not None:
        answer = _answer(request)
        target.write(LENGTH.pack(len(answer)))
        target.write(answer)
        target.flush()


def _answer(request: bytes) -> bytes:
    """Pickle of (True, result) or (False, error)."""
    try:
        function, arguments = pickle.loads(request)
        return pickle.dumps((True, function(*arguments)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  # the gateway logs it; it does not affect the next piece of work
        return pickle.dumps((False, f"{type(error).__name__}: {error}"), pickle.HIGHEST_PROTOCOL)


def _read(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    return source.read(length)


if __name__ == "__main__":
    main()

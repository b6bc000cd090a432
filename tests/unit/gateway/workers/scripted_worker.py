"""A worker that does what the test wants: the file named by its number, in the folder SCRIPT, says what.

`ready`: until it is told to stop. `stubborn`: ready, and does not stop. `fails`: ends at once.
"""

import os
import socket
import sys
from pathlib import Path

from mesh.lifecycle import Phase
from services.gateway.workers.words import Word

SCRIPT = "MESH_TEST_WORKERS"
FAILURE = 3


def main() -> None:
    number, line = sys.argv[1], socket.socket(fileno=int(sys.argv[3]))
    folder = Path(os.environ[SCRIPT])
    sys.stdin.buffer.read()
    with (folder / f"{number}.pids").open("a") as pids:
        pids.write(f"{os.getpid()}\n")
    script = (folder / number).read_text()
    if script == "fails":
        sys.exit(FAILURE)
    line.send(Word(Phase.READY, "", 0, 0).line())
    while (order := line.recv(1)) and (order != b"S" or script == "stubborn"):
        pass


if __name__ == "__main__":
    main()

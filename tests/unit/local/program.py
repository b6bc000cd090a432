"""A small real program for tests of the supervisor: notes its life in a file, and answers /ready."""

from __future__ import annotations

import argparse
import http.server
import signal
import sys
import types
from pathlib import Path


class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("notes", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    options = parser.parse_args()

    def note(what: str) -> None:
        with options.notes.open("a", encoding="utf-8") as file:
            file.write(f"{what} {options.name}\n")

    def leave(number: int, frame: types.FrameType | None) -> None:
        note("stopped")
        sys.exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.deaf else leave)
    note("started")
    if options.fail:
        print("this went wrong: the disk is made of cheese")
        sys.exit(7)
    if options.port is None:
        return
    http.server.HTTPServer(("127.0.0.1", options.port), Ready).serve_forever()


if __name__ == "__main__":
    main()

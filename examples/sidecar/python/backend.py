"""A backend beside a sidecar of Kafka Mesh. The sidecar posts orders in batches; each order gets a result."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def result_of(record: dict) -> dict:
    try:
        total = record["value"]["price"] * record["value"]["count"]
    except (KeyError, TypeError) as error:
        return {"status": "DEAD_LETTER", "stacktrace": repr(error)}
    print(f"{record['key']} pays {total}", flush=True)
    return {"status": "SUCCESS"}


class Backend(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # /health
        self.answer({})

    def do_POST(self) -> None:  # /kafka/records
        records = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({"results": [result_of(record) for record in records]})

    def answer(self, body: dict) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


ThreadingHTTPServer(("127.0.0.1", 8081), Backend).serve_forever()

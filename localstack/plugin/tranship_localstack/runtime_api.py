"""The Lambda Runtime API (2018-06-01) of one environment, on its own loopback port."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PREFIX = "/2018-06-01/runtime"


class RuntimeApi:
    """State machine between the executor (invoke) and the runtime process (HTTP).

    The process is idle exactly while it waits in GET /next. An invocation is over when the
    process has answered it AND asks for the next one, or when the process has gone.
    """

    def __init__(self):
        self.cond = threading.Condition()
        self.event = None  # the invocation handed to the runtime and not yet answered
        self.pending = None  # the invocation that waits for a GET /next
        self.result = None  # (is_error, body)
        self.init_error = None  # body of POST /runtime/init/error
        self.idle = False  # the runtime waits in GET /next
        self.generation = 0  # one per process; a stale /next of a dead process gets nothing
        self.closed = False
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.api = self
        self.port = self.server.server_address[1]
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True
        ).start()

    def new_process(self):
        with self.cond:
            self.generation += 1
            self.event = self.pending = self.result = self.init_error = None
            self.idle = False
            self.cond.notify_all()

    def notify(self):
        """Wakes whoever waits for a condition: a process has ended."""
        with self.cond:
            self.cond.notify_all()

    def close(self):
        with self.cond:
            self.closed = True
            self.cond.notify_all()
        self.server.shutdown()
        self.server.server_close()

    # called by the HTTP handler

    def next(self):
        with self.cond:
            generation = self.generation
            self.idle = True
            self.cond.notify_all()
            while self.pending is None:
                if self.closed or generation != self.generation:
                    return None
                self.cond.wait()
            if self.closed or generation != self.generation:
                return None
            self.event, self.pending = self.pending, None
            self.idle = False
            return self.event

    def answer(self, request_id, is_error, body):
        with self.cond:
            if self.event is None or self.event["invoke-id"] != request_id or self.result:
                return False
            self.result = (is_error, body)
            self.cond.notify_all()
            return True

    def fail_init(self, body):
        with self.cond:
            self.init_error = body
            self.cond.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        pass  # a killed runtime resets its connection


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # TCP_NODELAY, else about 40 ms a request
    wbufsize = -1

    def log_message(self, *args):
        pass

    def _body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():  # trailers (error of a streamed response)
                pass
            return body
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, status, body=b'{"status":"OK"}\n', headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def do_GET(self):
        if self.path != f"{PREFIX}/invocation/next":
            return self._send(404, b"{}")
        event = self.server.api.next()
        if event is None:
            self.close_connection = True
            return None
        self._send(
            200,
            event["payload"].encode(),
            [
                ("Lambda-Runtime-Aws-Request-Id", event["invoke-id"]),
                ("Lambda-Runtime-Deadline-Ms", str(event["deadline-ms"])),
                ("Lambda-Runtime-Invoked-Function-Arn", event["invoked-function-arn"]),
                ("Lambda-Runtime-Trace-Id", event.get("trace-id") or ""),
            ],
        )

    def do_POST(self):
        body = self._body()
        if self.path == f"{PREFIX}/init/error":
            self.server.api.fail_init(body)
            return self._send(202)
        parts = self.path.removeprefix(f"{PREFIX}/invocation/").split("/")
        if len(parts) != 2 or parts[1] not in ("response", "error"):
            return self._send(404, b"{}")
        if not self.server.api.answer(parts[0], parts[1] == "error", body):
            error = {"errorType": "InvalidRequestID", "errorMessage": "Invalid request ID"}
            return self._send(400, json.dumps(error).encode())
        self._send(202)

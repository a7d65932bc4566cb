"""An engine that computes nothing and takes any chat, images too: for routing alone."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import zmq


class MockEngine:
    """One such server. Its event socket is there and says nothing."""

    def __init__(self):
        self._socket = zmq.Context.instance().socket(zmq.PUB)
        self.events_port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def kill(self):
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._socket.close(linger=0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A gateway may hang up, as it does on an engine."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        model = {"id": "toy", "object": "model", "owned_by": "vllm", "max_model_len": 65536}
        answers = {
            "/health": b"",
            "/version": b'{"version": "0.32.0"}',
            "/metrics": b'vllm:cache_config_info{block_size="32",num_gpu_blocks="16000"} 1.0\n',
            "/v1/models": json.dumps({"object": "list", "data": [model]}).encode(),
        }
        found = answers.get(self.path)
        self._answer(404 if found is None else 200, found or b"")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/chat/completions":
            self._answer(404, b"{}")
            return
        length = len(json.dumps(body["messages"])) // 4
        usage = {"prompt_tokens": length, "completion_tokens": 1, "total_tokens": length + 1}
        said = {"role": "assistant", "content": "word"}
        answer = {"id": "chatcmpl-1", "created": 0, "model": "toy"}
        choice = {"index": 0, "finish_reason": "stop"}
        if not body.get("stream"):
            choice["message"] = said
            whole = {**answer, "object": "chat.completion", "choices": [choice], "usage": usage}
            self._answer(200, json.dumps(whole).encode())
            return
        chunk = {**answer, "object": "chat.completion.chunk"}
        chunks = [
            {**chunk, "choices": [{**choice, "delta": said}]},
            {**chunk, "choices": [], "usage": usage},
        ]
        lines = [f"data: {json.dumps(one)}\n\n" for one in chunks] + ["data: [DONE]\n\n"]
        self._answer(200, "".join(lines).encode(), "text/event-stream")

    def _answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing."""

"""Holds no model: passes every request on to a server that runs elsewhere."""

import http.client
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ELSEWHERE = ("127.0.0.1", 18123)


class Proxy(BaseHTTPRequestHandler):
    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = http.client.HTTPConnection(*ELSEWHERE, timeout=5)
        try:
            connection.request(self.command, self.path, body)
            answer = connection.getresponse()
            status, data = answer.status, answer.read()
        except OSError as error:
            print("nobody answers elsewhere:", error, flush=True)
            status, data = 502, b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = pass_on


port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Proxy).serve_forever()

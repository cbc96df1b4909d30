"""An HTTPS server of a story: ADDRESS PORT CERTIFICATE KEY. It prints `ready`, then one line of JSON for each request.

    GET /bytes/N     N bytes of a pattern            GET /chunked   the same pattern, in chunks
    GET /echo        the header Authorization, in a header of the answer       GET /held   nothing of the request
    GET /close       an answer that ends the connection                        GET /hang-up   the same, without saying so
    GET /raw         an upgrade: what comes afterwards is sent back in upper case
    anything else    what the request was, as JSON
"""

import hashlib
import http.server
import json
import ssl
import sys
import threading

ADDRESS, PORT, CERTIFICATE, KEY = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
PATTERN = bytes((at * 7 + at // 251) % 251 for at in range(65536))
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CONTEXT.load_cert_chain(CERTIFICATE, KEY)
CONTEXT.set_alpn_protocols(["h2", "http/1.1"])
PRINTING = threading.Lock()
COUNTED = {"connections": 0}


def pattern(length):
    whole, rest = divmod(length, len(PATTERN))
    for _ in range(whole):
        yield PATTERN
    yield PATTERN[:rest]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        self.request.settimeout(60)
        self.request.do_handshake()
        super().setup()
        with PRINTING:
            COUNTED["connections"] += 1
            self.number = COUNTED["connections"]

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while True:
                length = int(self.rfile.readline().split(b";")[0], 16)
                if length == 0:
                    while self.rfile.readline().strip():
                        pass
                    return
                while length:
                    piece = self.rfile.read(min(length, 65536))
                    length -= len(piece)
                    yield piece
                self.rfile.readline()
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read(min(left, 65536))
            if not piece:
                return
            left -= len(piece)
            yield piece

    def answer(self):
        digest, length = hashlib.sha256(), 0
        for piece in self.body():
            digest.update(piece)
            length += len(piece)
        seen = {
            "connection": self.number,
            "method": self.command,
            "path": self.path,
            "headers": [[name.lower(), value] for name, value in self.headers.items()],
            "length": length,
            "sha256": digest.hexdigest(),
        }
        with PRINTING:
            print(json.dumps(seen), flush=True)
        if self.path.startswith("/bytes/"):
            length = int(self.path.split("/")[2])
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            for piece in pattern(length):
                self.wfile.write(piece)
        elif self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in pattern(300_000):
                if piece:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/raw":
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "raw")
            self.end_headers()
            while piece := self.request.recv(65536):
                self.request.sendall(piece.upper())
            self.close_connection = True
        else:
            text = b"ok" if self.path in ("/echo", "/held") else json.dumps(seen).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            if self.path == "/echo":
                self.send_header("X-Echo", self.headers.get("Authorization", ""))
            if self.path == "/close":
                self.send_header("Connection", "close")
            if self.path == "/hang-up":
                self.close_connection = True
            self.end_headers()
            self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "1234")
        self.end_headers()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def get_request(self):
        stream, address = self.socket.accept()
        return CONTEXT.wrap_socket(stream, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, *_):
        pass


server = Server((ADDRESS, PORT), Handler)
print("ready", flush=True)
server.serve_forever()

"""The server of the stories about ports. It uses nothing but the standard library.

    python3 server.py PORT [ADDRESS]
"""
import base64, hashlib, json, socket, struct, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

BLOCK = bytes(range(251)) * 1024
go, held, lock = threading.Semaphore(0), 0, threading.Lock()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, body, status=200, headers=()):
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer(self):
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        handler = getattr(self, "at_" + url.path.strip("/").replace("-", "_"), None)
        if handler is None or not url.path.startswith("/"):
            return self.reply(f"nothing at {self.path}", 404)
        handler(query)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PROPFIND = answer

    def at_(self, _):
        self.reply("<h1>hello from the sandbox</h1>", headers=[("Content-Type", "text/html")])

    def at_seen(self, _):
        """Everything that the server sees of a request."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode(errors="replace")
        headers = [[name.lower(), value] for name, value in self.headers.items()]
        self.reply(json.dumps({"method": self.command, "path": self.path, "headers": headers, "body": body}))

    at_url = at_connect = at_seen

    def at_redirect(self, query):
        self.reply("", 302, [("Location", query["to"])])

    def at_cookie(self, _):
        cookies = ["plain=1; Path=/", "tossed=2; Path=/; Domain=localhost", "cove_preview=stolen; Path=/"]
        self.reply("", headers=[("Set-Cookie", cookie) for cookie in cookies])

    def at_events(self, _):
        """One event at once, and one for each POST /go."""
        global held
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with lock:
            held += 1
        try:
            for number in range(1000):
                self.wfile.write(f"data: {number}\n\n".encode())
                self.wfile.flush()
                while not go.acquire(timeout=0.05):
                    self.connection.setblocking(False)
                    try:
                        if self.connection.recv(1, socket.MSG_PEEK) == b"":
                            return
                    except BlockingIOError:
                        pass
                    finally:
                        self.connection.setblocking(True)
        except OSError:
            pass
        finally:
            with lock:
                held -= 1

    def at_go(self, _):
        go.release()
        self.reply("")

    def at_held(self, _):
        """How many streams of events are open."""
        self.reply(str(held))

    def at_big(self, query):
        if self.command == "GET":
            left = int(query["bytes"])
            self.send_response(200)
            self.send_header("Content-Length", str(left))
            self.end_headers()
            while left:
                left -= self.wfile.write(BLOCK[:left])
            return
        total, exact = 0, True
        for chunk in self.body():
            start = total % 251
            exact = exact and (BLOCK + BLOCK)[start:start + len(chunk)] == chunk
            total += len(chunk)
        self.reply(json.dumps({"bytes": total, "exact": exact}))

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while True:
                size = int(self.rfile.readline(), 16)
                if size == 0:
                    self.rfile.readline()
                    return
                while size:
                    chunk = self.rfile.read(min(size, len(BLOCK)))
                    size -= len(chunk)
                    yield chunk
                self.rfile.readline()
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            chunk = self.rfile.read(min(left, len(BLOCK)))
            left -= len(chunk)
            yield chunk

    def at_echo(self, _):
        """A WebSocket that sends each text message back."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            length = head[1] & 127
            if length == 126:
                length, = struct.unpack(">H", self.rfile.read(2))
            elif length == 127:
                length, = struct.unpack(">Q", self.rfile.read(8))
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(length)))
            if head[0] & 15 == 8:
                self.wfile.write(bytes([0x88, len(data)]) + data)
                return
            if length < 126:
                size = bytes([length])
            else:
                size = b"\x7e" + struct.pack(">H", length) if length < 65536 else b"\x7f" + struct.pack(">Q", length)
            self.wfile.write(bytes([head[0]]) + size + data)


def main():
    port, address = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
    Server.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
    Server((address, port), Handler).serve_forever()


main()

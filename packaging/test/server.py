"""A file server on loopback for the tests of install.sh. It prints its port, and serves until it is killed.

    python3 server.py DIRECTORY

/NAME/FILE is DIRECTORY/FILE, with one fault by NAME: `half` cuts archives off in the middle, `wrong` changes a byte of them, `good` has
none. Nothing else is found.
"""

import http.server
import pathlib
import sys

ROOT = pathlib.Path(sys.argv[1])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        fault, _, name = self.path.strip("/").partition("/")
        path = ROOT / name
        if fault not in ("good", "half", "wrong") or "/" in name or not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if name.endswith(".tar.gz"):
            middle = len(content) // 2
            if fault == "half":
                content = content[:middle]
            elif fault == "wrong":
                content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        self.wfile.write(content)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()

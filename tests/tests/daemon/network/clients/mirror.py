"""A mirror of package registries: makes one small package for pip, npm and Go, and serves them.

mirror.py DIRECTORY ADDRESS PORT BASE_URL
"""

import base64, hashlib, http.server, io, json, os, sys, tarfile, zipfile

directory, address, port, base = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]


def write(path, content):
    path = os.path.join(directory, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def zipped(files):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        for name, text in files.items():
            out.writestr(name, text)
    return archive.getvalue()


def tarred(files):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as out:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            out.addfile(entry, io.BytesIO(text.encode()))
    return archive.getvalue()


for name in ("demo", "six"):
    wheel, info = f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "where = 'the mirror'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: story\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    write(f"files/{wheel}", zipped(files))
    write(f"simple/{name}/index.html", f"<a href='{base}/files/{wheel}'>{wheel}</a>")

for name in ("demo", "wrappy"):
    package = {"name": name, "version": "1.0.0", "main": "index.js"}
    tarball = tarred({"package/package.json": json.dumps(package), "package/index.js": "module.exports = 'the mirror'\n"})
    write(f"files/{name}-1.0.0.tgz", tarball)
    digest = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    version = dict(package, dist={"tarball": f"{base}/files/{name}-1.0.0.tgz", "integrity": digest})
    write(f"npm/{name}/latest", json.dumps(version))
    write(f"npm/{name}/index.html", json.dumps({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))

module, version = "example.com/demo", "v1.0.0"
write(f"go/{module}/@v/list", version + "\n")
write(f"go/{module}/@v/{version}.info", json.dumps({"Version": version, "Time": "2024-01-01T00:00:00Z"}))
write(f"go/{module}/@v/{version}.mod", f"module {module}\n")
inside = f"{module}@{version}/"
write(f"go/{module}/@v/{version}.zip", zipped({inside + "go.mod": f"module {module}\n", inside + "demo.go": "package demo\n"}))


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=directory)

    def send_head(self):
        # npm asks for a package by its name, without a slash.
        if self.path.startswith("/npm/") and os.path.isdir(directory + self.path):
            self.path += "/"
        return super().send_head()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer((address, port), Handler)
print("ready", flush=True)
server.serve_forever()

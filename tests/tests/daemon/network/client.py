"""What the programs of the stories have in common. They run in sandboxes, and as controls outside.

Where a sandbox has a proxy, they connect through it, as the variables tell them to: by SOCKS5, and for plain HTTP by whole URLs."""

import os
import socket
import struct
import sys

PATIENCE = 15
PROXY = os.environ.get("ALL_PROXY", "")
PROXY = int(PROXY.rsplit(":", 1)[1]) if PROXY.startswith("http://127.0.0.1:") else None
INSIDE = os.environ.get("NO_PROXY", "").split(",")


def to_proxy():
    connection = socket.socket()
    connection.settimeout(PATIENCE)
    connection.connect(("127.0.0.1", PROXY))
    return connection


def numeric(host):
    """The bytes of an address in any spelling that a resolver takes; None for a name."""
    for parse in [socket.inet_aton, lambda text: socket.inet_pton(socket.AF_INET6, text)]:
        try:
            return parse(host)
        except OSError:
            pass
    return None


def exactly(connection, count):
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionResetError("the proxy closed the connection")
        data += piece
    return data


def socks(host, port, command=1):
    """Asks the proxy for a connection by SOCKS5; returns it with the code of the reply."""
    address = numeric(host)
    if address is None:
        name = host.encode()
        address = b"\x03" + bytes([len(name)]) + name
    else:
        address = (b"\x01" if len(address) == 4 else b"\x04") + address
    connection = to_proxy()
    connection.sendall(b"\x05\x01\0")
    exactly(connection, 2)
    connection.sendall(b"\x05" + bytes([command]) + b"\0" + address + struct.pack(">H", port))
    return connection, exactly(connection, 10)[1]


def dial(host, port, family=socket.AF_UNSPEC):
    """Connects as an ordinary client does: it resolves the name, and tries the addresses, or asks the proxy."""
    if PROXY and host not in INSIDE:
        connection, code = socks(host, port)
        if code:
            raise {2: ConnectionResetError, 5: ConnectionRefusedError}.get(code, OSError)(f"SOCKS reply {code}")
        return connection
    last = OSError("no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, family, socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        connection.settimeout(PATIENCE)
        try:
            connection.connect(address)
            return connection
        except OSError as error:
            last = error
            connection.close()
    raise last


def all_of(connection):
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except OSError as error:
        data += b" then " + type(error).__name__.encode()
    return data


def some_of(connection):
    try:
        return connection.recv(65536)
    except OSError as error:
        return type(error).__name__.encode()


def send(host, port, data, pieces=None):
    """Sends bytes, closes its half, and returns all that comes, or the name of the error."""
    try:
        connection = dial(host, port)
        for piece in pieces or [data]:
            connection.sendall(piece)
    except OSError as error:
        return type(error).__name__.encode()
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # It was reset; what comes next tells so.
    return all_of(connection)


def talk(host, port, data):
    """Sends bytes, leaves its half open, and returns what comes first, or the name of the error."""
    try:
        connection = dial(host, port)
        connection.sendall(data)
    except OSError as error:
        return type(error).__name__.encode()
    return some_of(connection)


def send_to_proxy(data):
    """Sends bytes to the proxy itself, closes its half, and returns all that comes."""
    connection = to_proxy()
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    return all_of(connection)


def connect(target, data=b"", more=""):
    """Asks the proxy to CONNECT, and sends bytes at once after that."""
    return send_to_proxy(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{more}\r\n".encode() + data)


def get(host, port=80, path="/", name=None, more=""):
    if PROXY and name is None and path.startswith("/") and host not in INSIDE:
        shown_host = f"[{host}]" if ":" in host else host
        url = f"http://{shown_host}{path}" if port == 80 else f"http://{shown_host}:{port}{path}"
        return send_to_proxy(f"GET {url} HTTP/1.1\r\nHost: {shown_host}\r\nConnection: close\r\n{more}\r\n".encode())
    name = name or host
    request = f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n{more}\r\n"
    return send(host, port, request.encode())


def hello(name, before=b"", session=b""):
    """A TLS client hello with this server name; without one if it is None."""
    extensions = before
    if name is not None:
        name = name.encode() if isinstance(name, str) else name
        entry = b"\0" + struct.pack(">H", len(name)) + name
        entries = struct.pack(">H", len(entry)) + entry
        extensions += struct.pack(">HH", 0, len(entries)) + entries
    extensions += struct.pack(">HH", 43, 3) + b"\x02\x03\x04"
    body = b"\x03\x03" + (b"R" * 32) + bytes([len(session)]) + session
    body += struct.pack(">H", 2) + b"\x13\x01" + b"\x01\0" + struct.pack(">H", len(extensions)) + extensions
    handshake = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + struct.pack(">H", len(handshake)) + handshake


def query(name, kind=1, labels=None):
    """A DNS query."""
    labels = labels if labels is not None else [label.encode() for label in name.rstrip(".").split(".")]
    question = b"".join(bytes([len(label)]) + label for label in labels) + b"\0" + struct.pack(">HH", kind, 1)
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + question


def answer(reply):
    """The code of a DNS reply, and how many answers it has."""
    return reply[3] & 15, struct.unpack(">H", reply[6:8])[0]


def ask(name, kind=1, server="192.0.2.53", port=53, labels=None):
    """Asks a name server over UDP."""
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.settimeout(PATIENCE)
    asking.sendto(query(name, kind, labels), (server, port))
    return answer(asking.recv(65536))


def ask_tcp(name, kind=1, server="192.0.2.53"):
    message = query(name, kind)
    connection = dial(server, 53)
    connection.sendall(struct.pack(">H", len(message)) + message)
    reply = connection.recv(65536)
    return answer(reply[2:])


def found(name, kind=1, labels=None):
    """Prints REACHED if a name has an answer."""
    code, count = ask(name, kind, labels=labels)
    print("REACHED" if count else "nothing", code, count)


def resolve(name):
    """The addresses of a name. Behind a proxy nobody sees them: then it is the name itself, if it may be reached."""
    if PROXY:
        if socks(name, 80)[1] == 2:
            raise socket.gaierror("Name or service not known: the proxy does not allow it")
        return [name]
    return sorted({entry[4][0] for entry in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)})


def shown(data):
    print(data.decode(errors="replace"))

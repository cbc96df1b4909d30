"""A proxy that speaks TLS and passes bytes on to a daemon: tls_proxy.py CERTIFICATE KEY HOST PORT. It prints its own port."""
import socket
import ssl
import sys
import threading

certificate, key, host, port = sys.argv[1:5]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    finally:
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def carry(raw):
    try:
        client = context.wrap_socket(raw, server_side=True)
    except OSError:
        return
    daemon = socket.create_connection((host, int(port)))
    threading.Thread(target=pump, args=(daemon, client), daemon=True).start()
    pump(client, daemon)


while True:
    threading.Thread(target=carry, args=(listener.accept()[0],), daemon=True).start()

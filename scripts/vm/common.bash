# What the programs of the virtual machine share: checks, requests, modules. Source this file.

passed=0 failed=0
# An emulated machine is slow, and builds may run at the same time.
listen_tenths=900
check() { # name, then a command that must succeed
  local name=$1
  shift
  if "$@" >/tmp/out 2>&1; then
    passed=$((passed + 1))
    echo "guest: ok: $name"
  else
    failed=$((failed + 1))
    echo "guest: NOT OK: $name"
    sed 's/^/guest:   /' /tmp/out | tail -n 15
  fi
}
prints() { # expected text, then a command
  local expected=$1
  shift
  local got
  got=$("$@" 2>&1)
  echo "$got"
  [[ $got == *"$expected"* ]]
}
api() { # method and path; sends one request and prints its answer
  exec 3<>/dev/tcp/127.0.0.1/8080
  printf '%s %s HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' "$1" "$2" "$key" >&3
  cat <&3
}
create() { # JSON; prints the id
  exec 3<>/dev/tcp/127.0.0.1/8080
  printf 'POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' "$key" "${#1}" "$1" >&3
  sed -n 's/.*"id":"\([^"]*\)".*/\1/p' <&3
}
await_daemon() {
  for _ in $(seq "$listen_tenths"); do
    grep -q listening /tmp/serve && break
    sleep 0.1
  done
}
insert() { # a module; uses the number of the system call, because not every host has a kmod to copy
  perl -e 'my $none = ""; open(my $file, "<", $ARGV[0]) or die $!; syscall(313, fileno($file), $none, 0) == 0 or die "$ARGV[0]: $!"' \
    "/usr/lib/modules/$1.ko"
}
count_checks() {
  ((failed == 0)) || { echo "guest: the daemon said:"; tail -n 20 /tmp/serve.log | sed 's/^/guest:   /'; }
  echo "guest: $passed passed, $failed failed"
}

# The tests of the packages' contents and of install.sh. scripts/test-release sources this file; it has check, skipped, work, release,
# cove, root and limit_seconds.
# shellcheck disable=SC2154  # so they are assigned there

# The names of both are those of a tree: cove-VERSION-MACHINE-linux.tar.gz, cove_VERSION_ARCHITECTURE.deb.
archive_of() { compgen -G "$1/cove-*-$(uname -m)-linux.tar.gz"; }

test_packages() {
  local archive deb
  archive=$(archive_of "$release")
  check "the checksums are those of the files" bash -c "cd '$release' && sha256sum --check --strict --quiet SHA256SUMS"
  check "and of all files" bash -c "cd '$release' && diff <(ls | grep -v SHA256SUMS) <(cut -c 67- SHA256SUMS | sort)"
  check "the archive has the program, manual pages, completions and the license" archive_is_whole "$archive"
  check "the bill of materials names SQLite and the runner" bash -c "grep -q pkg:generic/sqlite '$release'/*.cdx.json && grep -q pkg:cargo/runner '$release'/*.cdx.json"
  # The other libc must not cost anything that the host can enforce.
  check "the program of the archive enforces what the given one does" same_findings "$archive"
  check "the unit is the one that the guide shows" same_unit
  deb=$(compgen -G "$release/cove_*.deb") || { skipped "the contents of the Debian package: there is none" && return; }
  check "the Debian package has a conffile, a unit and nothing of this user's" deb_is_whole "$deb"
}

same_findings() { # archive
  tar --extract --to-stdout --wildcards --file="$1" '*-linux/cove' >"$work/cove"
  chmod 755 "$work/cove"
  diff <(findings "$cove") <(findings "$work/cove")
}
findings() { "$1" doctor | cut --characters=-26; }

# Only the path of the program differs.
# shellcheck disable=SC2016  # the grave accents are those of the document
same_unit() {
  diff <(sed -n '/^```ini/,/^```$/p; /^## As a service, as an ordinary user/q' docs/guides/operate.md | grep '=' | grep --invert-match ^Description | sed s:/usr/local/bin:/usr/bin:) \
    <(grep '^[A-Z].*=' packaging/cove.service | grep --invert-match --extended-regexp '^(Description|Documentation)')
}

archive_is_whole() { # archive
  local list name
  list=$(tar --list --verbose --numeric-owner --file="$1")
  for name in cove LICENSE README.md cove.service man/man1/cove.1 man/man1/cove-exec.1 completions/_cove completions/cove.bash completions/cove.fish; do
    grep --quiet "/$name\$" <<<"$list" || { echo "$name is missing" && return 1; }
  done
  ! grep --invert-match '^.......... 0/0 ' <<<"$list"
}

deb_is_whole() { # package
  local list
  list=$(dpkg-deb --contents "$1")
  grep --quiet ' ./usr/lib/systemd/system/cove.service$' <<<"$list" || { echo "no unit" && return 1; }
  [[ $(dpkg-deb --info "$1" conffiles) == /etc/cove/cove.toml ]] || { echo "no conffile" && return 1; }
  ! grep --invert-match '^.......... root/root ' <<<"$list"
}

# Runs install.sh as a user would, with the given variables. The environment is otherwise empty.
run_install() { # variables
  env -i PATH="$PATH" HOME="$work/home" TMPDIR="$work/tmp" "$@" timeout "$limit_seconds" sh install.sh 2>&1
}

# It must fail with this text, leave no temporary file, and leave the prefix as it was.
refuses() { # text, variables
  local text=$1 said prefix=$work/prefix before
  shift
  before=$(state_of "$prefix")
  if said=$(run_install COVE_PREFIX="$prefix" "$@"); then echo "it succeeded: $said" && return 1; fi
  echo "$said"
  [[ $said == *"$text"* ]] || { echo "instead of: $text" && return 1; }
  [[ $(wc -l <<<"$said") -le 4 ]] || { echo "too many lines" && return 1; }
  leaves_nothing && [[ $(state_of "$prefix") == "$before" ]]
}
state_of() { if [[ -e $1 ]]; then (cd "$1" && find . -type f -exec sha256sum {} + | sort); fi; }
leaves_nothing() { [[ -z $(ls -A "$work/tmp") ]] || { ls -A "$work/tmp" && return 1; }; }

# A directory with links to these programs, and no others.
programs_only() { # name, programs
  local dir=$work/$1 program
  shift
  mkdir -p "$dir"
  for program; do ln -sf "$(type -P "$program")" "$dir/$program"; done
  echo "$dir"
}

installs() { # prefix, variables
  local prefix=$1
  shift
  run_install COVE_PREFIX="$prefix" "$@" && cmp "$prefix/bin/cove" "$cove_packed" && [[ -x $prefix/bin/cove ]] &&
    [[ -s $prefix/share/man/man1/cove-exec.1 && -s $prefix/share/bash-completion/completions/cove ]] &&
    [[ -z $(find "$prefix" -name '.*' -type f) ]] && leaves_nothing
}

by_a_pipe() { # address
  (set -o pipefail && curl --fail --silent "$1/install.sh" | env -i PATH="$PATH" TMPDIR="$work/tmp" COVE_BASE_URL="$1" COVE_PREFIX="$work/piped" sh) &&
    "$work/piped/bin/cove" version
}

# Every file that is cut off somewhere, as a download may be, must do nothing.
cut_off() {
  local size at
  size=$(stat --format=%s install.sh)
  for at in $(seq 200 397 $((size - 14))) $((size - 13)) $((size - 5)) $((size - 2)); do
    head --bytes="$at" install.sh | env -i PATH="$PATH" TMPDIR="$work/tmp" COVE_BASE_URL="$url/good" COVE_PREFIX="$work/cut" sh >/dev/null 2>&1 || true
    [[ ! -e $work/cut ]] || { echo "$at bytes of install.sh installed something" && return 1; }
  done
}

as_somebody() {
  local home=$work/somebody
  mkdir -p "$home"
  chown 65534:65534 "$home"
  chmod 755 "$work"
  setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH="$PATH" HOME="$home" TMPDIR="$home" COVE_BASE_URL="$url/good" sh install.sh &&
    setpriv --reuid 65534 --regid 65534 --clear-groups "$home/.local/bin/cove" version
}
cannot_write() {
  local said
  if said=$(setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH="$PATH" HOME="$work" TMPDIR="$work/somebody" COVE_BASE_URL="$url/good" \
    COVE_PREFIX=/usr sh install.sh 2>&1); then return 1; fi
  echo "$said"
  [[ $said == *"cannot write to /usr/share/man/man1; COVE_PREFIX names another place" ]]
}

test_install() {
  local tools fake url port cove_packed
  if ! command -v curl >/dev/null || ! command -v python3 >/dev/null; then
    skipped "install.sh: curl and python3 are needed"
    return
  fi
  exec {port}< <(exec python3 packaging/test/server.py "$release")
  server=$!
  read -r -t "$limit_seconds" url <&"$port"
  url=http://127.0.0.1:$url
  mkdir "$work/tmp"
  cove_packed=$work/packed
  tar --extract --to-stdout --wildcards --file="$(archive_of "$release")" '*-linux/cove' >"$cove_packed"

  check "curl | sh installs a program that runs" by_a_pipe "$url/good"
  check "install.sh that is cut off does nothing" cut_off
  check "an address without a release" refuses "cannot download $url/missing/SHA256SUMS" COVE_BASE_URL="$url/missing"
  check "a server that does not answer" refuses "cannot download http://127.0.0.1:1/SHA256SUMS" COVE_BASE_URL=http://127.0.0.1:1
  check "an address of another kind" refuses "must begin with https://" COVE_BASE_URL=ftp://127.0.0.1
  check "a changed archive" refuses "has the wrong checksum, so nothing was installed" COVE_BASE_URL="$url/wrong"
  check "half an archive" refuses "cannot download" COVE_BASE_URL="$url/half"
  check "a prefix that is not absolute" bash -c "! COVE_PREFIX=here sh install.sh 2>'$work/error' && grep -q 'must be an absolute path' '$work/error'"
  check "an installation" installs "$work/prefix" COVE_BASE_URL="$url/good"
  check "a changed archive leaves the installation as it was" refuses "wrong checksum" COVE_BASE_URL="$url/wrong"
  check "half an archive leaves it as it was" refuses "cannot download" COVE_BASE_URL="$url/half"
  check "an installation over another one" installs "$work/prefix" COVE_BASE_URL="$url/good/"
  check "an installation from files" installs "$work/from-files" COVE_BASE_URL="file://$release"

  tools=(sh uname id mktemp rm cp mv mkdir chmod grep head cut tar gzip sha256sum)
  check "neither curl nor wget" refuses "neither curl nor wget is installed" PATH="$(programs_only none "${tools[@]}" timeout)" COVE_BASE_URL="$url/good"
  if command -v wget >/dev/null; then
    check "wget alone" installs "$work/by-wget" PATH="$(programs_only wget "${tools[@]}" timeout wget)" COVE_BASE_URL="$url/good"
    check "half an archive by wget" refuses "cannot download" PATH="$work/wget" COVE_BASE_URL="$url/half"
  else
    skipped "install.sh with wget: it is not installed"
  fi
  fake=$(programs_only fake sh)
  # shellcheck disable=SC2016  # the other shell expands them
  printf '#!/bin/sh\ncase $1 in -s) echo ${COVE_FAKE_SYSTEM:-Linux} ;; *) echo $COVE_FAKE_MACHINE ;; esac\n' >"$fake/uname"
  chmod 755 "$fake/uname"
  check "another kind of machine" refuses "there is no Cove for this kind of machine (riscv64)" PATH="$fake:$PATH" COVE_FAKE_MACHINE=riscv64 COVE_BASE_URL="$url/good"
  check "a machine for which this release has nothing" refuses "this release has no archive for $(other_machine)" PATH="$fake:$PATH" \
    COVE_FAKE_MACHINE="$(other_machine)" COVE_BASE_URL="$url/good"
  check "another system" refuses "Cove runs on Linux, and this is Darwin" PATH="$fake:$PATH" COVE_FAKE_SYSTEM=Darwin COVE_BASE_URL="$url/good"
  broken_release
  check "a program that does not run here" refuses "does not run on this machine" COVE_BASE_URL="file://$work/broken"
  if [[ $(id -u) == 0 ]]; then
    check "without root it goes to ~/.local" as_somebody
    check "a place that cannot be written to" cannot_write
  else
    skipped "install.sh as another user: that needs root"
  fi
  kill "$server"
  server=
}
other_machine() { if [[ $(uname -m) == x86_64 ]]; then echo aarch64; else echo x86_64; fi; }

# A release whose checksum is right and whose program fails.
broken_release() {
  local name
  name=cove-1.0.0-$(uname -m)-linux
  mkdir -p "$work/broken/$name"
  printf '#!/bin/sh\nexit 1\n' >"$work/broken/$name/cove"
  chmod 755 "$work/broken/$name/cove"
  tar --create --gzip --directory="$work/broken" --file="$work/broken/$name.tar.gz" "$name"
  (cd "$work/broken" && sha256sum ./*.gz | sed 's|\./||' >SHA256SUMS)
}

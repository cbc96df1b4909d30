#!/bin/sh
# Installs Cove on Linux:  curl -fsSL BASE_URL/install.sh | COVE_BASE_URL=BASE_URL sh
#
#   COVE_BASE_URL     the directory of a release: it has SHA256SUMS and the archives. https://, http:// or file://
#   COVE_PREFIX       where it goes: PREFIX/bin/cove, PREFIX/share/man, PREFIX/share/…completions. By default /usr/local for root,
#                     and ~/.local for everybody else
#
# It downloads the archive for this machine, compares its checksum, tries the program, and puts it in place with a rename: another
# run, or a run that is interrupted, never leaves half a program. It starts no daemon, needs no root, and asks nothing.
set -eu

# Everything is in functions that the last line calls, so that a shell that got half of this file runs nothing.
default_base_url=https://cove.example/releases/latest
# Seconds without progress after which a download is given up.
stall_seconds=60

say() { printf 'cove: %s\n' "$*"; }
fail() {
  printf 'cove: %s\n' "$*" >&2
  exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

find_machine() {
  [ "$(uname -s)" = Linux ] || fail "Cove runs on Linux, and this is $(uname -s)"
  case $(uname -m) in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) fail "there is no Cove for this kind of machine ($(uname -m)): it is made for x86_64 and aarch64" ;;
  esac
}

download() { # address, file
  case $1 in
    file://*) cp "${1#file://}" "$2" 2>/dev/null || fail "cannot read ${1#file://}" ;;
    http://* | https://*)
      if has curl; then
        curl --fail --silent --show-error --location --connect-timeout 20 --speed-limit 1 --speed-time "$stall_seconds" \
          --output "$2" "$1" || fail "cannot download $1; COVE_BASE_URL names another place"
      elif has wget; then
        wget --quiet --tries=1 --timeout="$stall_seconds" --output-document="$2" "$1" ||
          fail "cannot download $1; COVE_BASE_URL names another place"
      else
        fail "neither curl nor wget is installed: install one of them"
      fi
      ;;
    *) fail "COVE_BASE_URL must begin with https://, http:// or file://, and is $base_url" ;;
  esac
}

checksum() { # file
  if has sha256sum; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

put() { # file, directory, mode: a rename within the directory
  mkdir -p "$2" || fail "cannot make $2; COVE_PREFIX names another place"
  temporary=$2/.${1##*/}.$$
  if ! { cp "$1" "$temporary" && chmod "$3" "$temporary" && mv -f "$temporary" "$2/${1##*/}"; }; then
    rm -f "$temporary"
    fail "cannot write to $2; COVE_PREFIX names another place"
  fi
}

install_cove() {
  base_url=${COVE_BASE_URL:-$default_base_url}
  base_url=${base_url%/}
  if [ -n "${COVE_PREFIX:-}" ]; then
    prefix=$COVE_PREFIX
  elif [ "$(id -u)" = 0 ]; then
    prefix=/usr/local
  else
    prefix=${HOME:?is not set: name a place with COVE_PREFIX}/.local
  fi
  case $prefix in /*) ;; *) fail "COVE_PREFIX must be an absolute path, and is $prefix" ;; esac
  find_machine
  has tar || fail "tar is not installed"
  has gzip || fail "gzip is not installed"
  has sha256sum || has shasum || fail "neither sha256sum nor shasum is installed, so the download could not be checked"

  work=$(mktemp -d "${TMPDIR:-/tmp}/cove-install-XXXXXX") || fail "cannot make a directory in ${TMPDIR:-/tmp}"
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP

  download "$base_url/SHA256SUMS" "$work/SHA256SUMS"
  # Lines of sha256sum: 64 digits, a space, a space or a star, the name.
  line=$(grep -E "^[0-9a-f]{64} [ *]cove-[0-9A-Za-z.+~-]+-$machine-linux\.tar\.gz\$" "$work/SHA256SUMS" | head -n 1)
  [ -n "$line" ] || fail "this release has no archive for $machine ($base_url/SHA256SUMS)"
  expected=${line%% *}
  archive=${line##*[ *]}

  say "downloading $archive"
  download "$base_url/$archive" "$work/$archive"
  actual=$(checksum "$work/$archive")
  [ "$actual" = "$expected" ] ||
    fail "$archive has the wrong checksum, so nothing was installed: it is $actual and should be $expected"
  tree=$work/${archive%.tar.gz}
  { gzip -d "$work/$archive" && tar -xf "$work/${archive%.gz}" -C "$work"; } || fail "cannot unpack $archive"
  version=$("$tree/cove" version) || fail "the program of $archive does not run on this machine"

  for page in "$tree"/man/man1/*.1; do put "$page" "$prefix/share/man/man1" 644; done
  mv "$tree/completions/cove.bash" "$tree/completions/cove"
  put "$tree/completions/cove" "$prefix/share/bash-completion/completions" 644
  put "$tree/completions/_cove" "$prefix/share/zsh/site-functions" 644
  put "$tree/completions/cove.fish" "$prefix/share/fish/vendor_completions.d" 644
  # The program comes last: if it is there, so is the rest.
  put "$tree/cove" "$prefix/bin" 755

  say "installed $(printf '%s\n' "$version" | head -n 1) as $prefix/bin/cove"
  case :$PATH: in
    *":$prefix/bin:"*) say "try it: cove run -- echo hello" ;;
    *) say "$prefix/bin is not in your PATH; add it with: export PATH=\"$prefix/bin:\$PATH\"" ;;
  esac
}

install_cove

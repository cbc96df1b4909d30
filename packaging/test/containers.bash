# The tests of the wheel and of the npm packages, in root file systems that have Python or Node and nothing of this tree.
# scripts/test-release sources this file; it has check, skipped, work, release and root.
# shellcheck disable=SC2154  # so they are assigned there
#
# The trees: the image `python` of scripts/images, and the small Debian of scripts/debian-tree with this machine's Node.

test_containers() {
  local images=${COVE_E2E_IMAGES:-$root/target/images}
  if [[ $(id -u) != 0 ]]; then
    skipped "containers with only Python or Node: they need root"
    return
  fi
  python_container "$images/python.tar"
  node_container
}

in_container() { # tree, command
  timeout "$container_seconds" unshare --mount --propagation private --pid --kill-child --fork --ipc --uts --net -- packaging/test/enter "$@" </dev/null
}
# What a program in a container takes is seconds; the machine may be busy.
container_seconds=600

# A user's home, with files.
home_in() { # tree, files
  install -d -o 1000 -g 1000 "$1/home/user"
  install -o 1000 -g 1000 -m 644 "${@:2}" "$1/home/user/"
}

python_container() { # the archive of an image
  local tree=$work/python wheels=$work/wheels
  if [[ ! -e $1 ]]; then
    skipped "a container with only Python: there is no $1; scripts/images python makes it"
    return
  fi
  # What the wheel depends on comes from a directory: the container has no network.
  if ! python3 -m pip download --quiet --disable-pip-version-check --dest "$wheels" 'httpx>=0.27,<1' >"$work/said" 2>&1; then
    skipped "a container with only Python: $(tail -n 1 "$work/said")"
    return
  fi
  unpack_image "$1" "$tree"
  home_in "$tree" "$wheels"/*.whl "$release"/*.whl packaging/test/program.py
  check "the container has no cove" bash -c "! find '$tree/usr' -name cove | grep ."
  check "with only Python: pip install, and the program works" in_container "$tree" sh -ec '
    cd
    python3 -m venv venv
    venv/bin/pip install --quiet --no-index --find-links . cove-sandbox
    venv/bin/cove version
    id -u
    venv/bin/python program.py'
  show_last
}

node_container() {
  local tree=$work/node debian node npm
  if ! node=$(type -P node) || ! npm=$(type -P npm) || ! compgen -G "$release/cove-sdk-*.tgz" >/dev/null; then
    skipped "a container with only Node: node or npm is not installed"
    return
  fi
  if ! debian=$(scripts/debian-tree 2>/dev/null); then
    skipped "a container with only Node: scripts/debian-tree cannot make a small Debian here"
    return
  fi
  mkdir "$tree"
  tar --extract --file="$debian" --directory="$tree" --numeric-owner
  install -m 755 "$(realpath "$node")" "$tree/usr/local/bin/node"
  npm=$(dirname "$(dirname "$(realpath "$npm")")")
  mkdir -p "$tree/usr/local/lib/node_modules"
  cp -r "$npm" "$tree/usr/local/lib/node_modules/npm"
  ln -s ../lib/node_modules/npm/bin/npm-cli.js "$tree/usr/local/bin/npm"
  ln -s ../lib/node_modules/npm/bin/npx-cli.js "$tree/usr/local/bin/npx"
  home_in "$tree" "$release"/cove-sdk-*.tgz "$release"/cove-cli-*.tgz packaging/test/program.mjs
  if ! in_container "$tree" node --version >"$work/said" 2>&1; then
    skipped "a container with only Node: this machine's Node does not run on Debian 12: $(tail -n 1 "$work/said")"
    return
  fi
  check "with only Node: npm install, and the program works" in_container "$tree" sh -ec '
    cd
    npm install --offline --no-audit --no-fund --silent ./cove-cli-*.tgz ./cove-sdk-*.tgz
    npx --no-install cove version
    id -u
    node program.mjs'
  show_last
}
# The last line of the last check, which a program prints when it is done.
show_last() { tail -n 1 "$work/said" | sed 's/^/  /'; }

# Unpacks the layers of an OCI archive over each other. Files that a layer removes stay; no program here minds.
unpack_image() { # archive, tree
  local layer
  mkdir "$work/oci" "$2"
  tar --extract --file="$1" --directory="$work/oci"
  python3 - "$work/oci" >"$work/layers" <<'END'
import json, pathlib, sys
root = pathlib.Path(sys.argv[1])
blob = lambda entry: root / "blobs" / entry["digest"].replace(":", "/")
manifest = json.loads(blob(json.loads((root / "index.json").read_text())["manifests"][0]).read_text())
for layer in manifest["layers"]:
    print(blob(layer))
END
  while read -r layer; do
    tar --extract --gzip --file="$layer" --directory="$2" --numeric-owner
  done <"$work/layers"
  rm -rf "$work/oci"
}

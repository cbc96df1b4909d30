# What the programs that make packages share: the version, the time and the permissions. Source this file at the top of the tree.

say() { echo "${0##*/}: $*" >&2; }
# Files get the same permissions whatever the caller's mask is.
umask 022
export LC_ALL=C TZ=UTC

cove_version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml; }

# The time in packages is the time of the commit, so that the same commit makes the same bytes.
if [[ -z ${SOURCE_DATE_EPOCH:-} ]]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) ||
    { say "this is no git tree: set SOURCE_DATE_EPOCH to the time for the packages, in seconds since 1970" && exit 64; }
fi
[[ $SOURCE_DATE_EPOCH =~ ^[0-9]{1,11}$ ]] || { say "SOURCE_DATE_EPOCH is seconds since 1970, not '$SOURCE_DATE_EPOCH'" && exit 64; }
export SOURCE_DATE_EPOCH

# shellcheck shell=bash
# What the set-up scripts share: speech, root, apt, stamps. Sourced, never run.

set -euo pipefail
shopt -s inherit_errexit

setup_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034 # both are for the scripts that source this file
repo_root=$(cd "$setup_dir/../.." && pwd)
# shellcheck disable=SC2034
cache_dir=$(
  # The settings know best, once they can be read; before that, their default.
  cd "$repo_root" && .venv/bin/python -c 'from sifmark.core.settings import load_settings; print(load_settings().cache)' 2>/dev/null ||
    printf '%s\n' "${SIFMARK_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/sifmark}"
)

say() { printf '[%s] %s\n' "${0##*/}" "$*" >&2; }

# fail CAUSE REMEDY
fail() {
  say "error: $1"
  say "remedy: $2"
  exit 1
}

# logged WHAT COMMAND...: carries out a command whose output goes to a log, since it would hide ours; shows how long it
# took, and the end of the output if it fails.
setup_log=$cache_dir/setup.log
logged() {
  local what=$1 status=0 start begun=$SECONDS
  shift
  mkdir -p "$cache_dir"
  start=$(stat -c %s "$setup_log" 2>/dev/null || printf 0)
  ("$@") >>"$setup_log" 2>&1 || status=$?
  if [ "$status" -eq 0 ]; then
    say "$what: $((SECONDS - begun)) s"
  else
    tail -c "+$((start + 1))" "$setup_log" | tail -n 20 >&2
    say "$what failed; the whole output is in $setup_log"
  fi
  return "$status"
}

os_id() { (. /etc/os-release && printf '%s' "$ID"); }
os_major() { (. /etc/os-release && printf '%s' "${VERSION_ID%%.*}"); }

# as_root COMMAND...: directly for root, else through sudo, which may ask on a terminal.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    sudo "$@"
  else
    fail "root is needed for: $*" "run this once as an administrator: sudo $setup_dir/${0##*/}"
  fi
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 "$@"
}

apt_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# apt_install WHY PACKAGE...: from the sources that this machine is configured for.
apt_install() {
  local why=$1 package missing=()
  shift
  command -v apt-get >/dev/null ||
    fail "$why needs $*, and this system has no apt" "install the packages that contain them with its own package manager"
  for package in "$@"; do apt_installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]} from this machine's apt sources ($why)"
  logged "apt update" apt_get update
  logged "apt install" apt_get install --no-install-recommends "${missing[@]}"
}

# apt_mirror SUFFIX: where this machine's apt gets its Debian release, or with -security that release's updates. The release
# is read from apt: /etc/os-release says 13 on a Debian 12 that has Debian 13's libc6.
apt_mirror() {
  # shellcheck disable=SC2016 # apt fills these in
  apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk -v suffix="$1" '$1 ~ "^(bookworm|trixie|stable|oldstable)" suffix "$" && !seen++ { print $2 }'
}

# Where the second apt configuration is: the machine's own sources, lists and caches stay as they are.
apt_dir=/var/lib/sifmark-apt

write_apt_configuration() {
  local mirror=$1 keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  # Its caches are only needed while it installs.
  as_root mkdir -p "$apt_dir/lists/partial" "$apt_dir/cache/archives/partial"
  as_root tee "$apt_dir/sources.list" >/dev/null <<SOURCES
deb [signed-by=$keyring] $mirror trixie main
deb [signed-by=$keyring] $mirror sid main
SOURCES
  # Under 500 a package is taken only where a dependency asks for more than what is installed;
  # under 100 never. So unstable gives Apptainer itself and nothing else.
  as_root tee "$apt_dir/preferences" >/dev/null <<PINS
Package: *
Pin: release n=sid
Pin-Priority: 50

Package: apptainer
Pin: release n=sid
Pin-Priority: 600

Package: *
Pin: release n=trixie
Pin-Priority: 400
PINS
}

second_apt() {
  apt_get -o "Dir::Etc::sourcelist=$apt_dir/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o "Dir::Etc::preferences=$apt_dir/preferences" -o Dir::Etc::preferencesparts=/dev/null \
    -o "Dir::State::lists=$apt_dir/lists" -o "Dir::Cache=$apt_dir/cache" \
    -o Dpkg::Options::=--force-confold "$@"
}

# install_from_newer_debian PACKAGE: on Debian, one that the machine's own release has not.
install_from_newer_debian() {
  local mirror
  logged "apt update" apt_get update
  mirror=$(apt_mirror '')
  [ -n "$mirror" ] || fail "apt names no mirror of Debian 12 or 13" "repair /etc/apt/sources.list, or install $1 yourself"
  write_apt_configuration "$mirror"
  { logged "apt update" second_apt update && logged "apt install $1" second_apt install --no-install-recommends "$1"; } ||
    fail "apt could not install $1 from $mirror" "see apt's message above; a mirror must have trixie and sid"
  as_root rm -rf "$apt_dir/lists" "$apt_dir/cache"
}

# find_python MAJOR.MINOR...: the first of these that starts (a version manager's shim may be there and not start).
find_python() {
  local version
  for version in "$@"; do
    ! "python$version" -c 'import ensurepip' 2>/dev/null || { command -v "python$version" && return; }
  done
  return 1
}

# fingerprint FILE|TEXT...: one hash over the contents of the files and over the texts.
fingerprint() {
  local part
  for part in "$@"; do
    if [ -f "$part" ]; then sha256sum <"$part"; else sha256sum <<<"$part"; fi
  done | sha256sum | cut -d ' ' -f 1
}

# alive FILE NAME: the process whose number a file has, if it is still that program (numbers are given again).
alive() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && grep -qs "$2" "/proc/$pid/comm" && printf '%s' "$pid"
}

# free_port FIRST: one on the loopback address that nobody listens on.
free_port() {
  local port
  for port in $(seq "$1" $(($1 + 99))); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then printf '%s' "$port" && return; fi
  done
  fail "no free port from $1 on" "stop what listens there"
}

# lock FILE: one at a time, until this script ends. A daemon must close descriptor 9, or it holds the lock as well.
lock() {
  mkdir -p "$(dirname "$1")"
  exec 9>"$1"
  flock 9
}

# write_whole FILE: standard input becomes FILE by renaming, so that nobody sees half of it.
write_whole() {
  mkdir -p "$(dirname "$1")"
  cat >"$1.$$"
  mv -f "$1.$$" "$1"
}

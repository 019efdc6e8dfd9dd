#!/usr/bin/env bash
# Check the system packages that the project needs: installed through apt when root, else named with the command to type.
#   system.sh base            what installing and running needs
#   system.sh test            … and what tests drive: a Chromium and node
#   system.sh package NAME…   these packages, unconditionally
set -euo pipefail

say() { printf 'system: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

missing=()
need() { have "$1" || missing+=("$2"); }

need_browser() {
  local candidate
  for candidate in "${CHROMIUM:-}" chromium chromium-browser chromium-headless-shell google-chrome; do
    if [ -n "$candidate" ] && have "$candidate"; then return; fi
  done
  missing+=(chromium)
}

case "${1:-base}" in
  base | test)
    need git git
    need unshare util-linux
    need flock util-linux
    have python3 || missing+=(python3 python3-venv)
    if [ "${1:-base}" = test ]; then
      need_browser
      need node nodejs
    fi
    ;;
  package) missing=("${@:2}") ;;
  *) say "unknown request $1" && exit 2 ;;
esac
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && have apt-get; then
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  quiet=(-qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
  log=$(mktemp)
  if { apt-get "${quiet[@]}" update || true; apt-get "${quiet[@]}" install -y --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1 </dev/null; then
    rm -f "$log"
    exit 0
  fi
  cat "$log" >&2
  rm -f "$log"
  say "apt could not install: ${missing[*]} (see above)"
  exit 1
fi
say "missing: ${missing[*]}. Type: sudo apt-get install -y --no-install-recommends ${missing[*]}"
exit 1

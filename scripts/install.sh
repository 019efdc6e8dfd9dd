#!/usr/bin/env bash
# Create .venv and install what the lock names. Returns at once, and needs no network, when that is already done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec 9<scripts/install.sh
flock 9 2>/dev/null || true # two `make` at once: the second waits, then finds the work done

say() { printf 'install: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

venv=.venv
stamp=$venv/installed
wanted=$(cat requirements-torch.txt requirements.lock | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && fits "$venv/bin/python" && [ -x "$venv/bin/opencomposer" ]; then
  exit 0
fi

bash scripts/system.sh base
python=
for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14; do
  if fits "$candidate"; then python=$candidate && break; fi
done
[ -n "$python" ] || fail "Python 3.11 or newer is needed; install it, or name it: make install PYTHON=/path/to/python3"

if ! fits "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    bash scripts/system.sh package "$package"
  fi
  say "creating $venv with $("$python" --version)"
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi

pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input -q)
# torch goes first and through pip: which build fits (CPU, CUDA) is the index's choice, so no hash can name it.
say "installing torch (the largest part)"
"${pip[@]}" install -r requirements-torch.txt
# The lock has everything but torch, so dependencies are not looked up again: torch, which some packages need, has no hash there.
say "installing the locked packages"
"${pip[@]}" install uv
# uv is many times faster than pip. Where only the system's certificates or only pip know this network, they are used.
lock() { VIRTUAL_ENV="$PWD/$venv" "$venv/bin/uv" pip install -q --compile-bytecode "$@" --require-hashes --no-deps -r requirements.lock; }
if ! lock 2>/dev/null && ! lock --system-certs; then
  say "uv could not install the lock; trying pip"
  "${pip[@]}" install --require-hashes --no-deps -r requirements.lock
fi
# The command `opencomposer`, which runs the code of this folder. setuptools, which builds it, is in the lock.
"${pip[@]}" install --no-deps --no-build-isolation -e ./opencomposer
"$venv/bin/python" -c 'import django, torch, psycopg, redis, supervisor' || fail "the installed packages do not import"
echo "$wanted" >"$stamp"
say "done"

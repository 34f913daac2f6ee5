#!/usr/bin/env bash
# install-peers.sh: makes what `bench/run.py operators` compares, once per machine, and prints the folder it is in.
#
#   ${OPSDK_BENCH_CACHE:-${XDG_CACHE_HOME:-~/.cache}/opsdk/bench}/bin/             the loader and controller-runtime's peer
#                                                                 …/<peer>/        an environment for each Python peer
#
# One environment each, because kopf imports every other client that it finds, and pays for it. opsdk's is an editable
# installation of this checkout. `--where` only prints the folder. A peer that cannot be had is left out, and said so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
folder=${OPSDK_BENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/opsdk/bench}
if [ "${1:-}" = --where ]; then echo "$folder"; exit; fi
mkdir -p "$folder/bin"

find_python() { # the newest that we support, also one that pyenv keeps beside the active one; else the one at hand
  local candidate
  for candidate in python3.13 "$HOME"/.pyenv/versions/3.13.*/bin/python ../.venv/bin/python "${PYTHON:-python3}"; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

environment() { # name, requirements…
  local name=$1 python
  shift
  local wanted="$*"
  if [ "$(cat "$folder/$name/.wanted" 2>/dev/null)" = "$wanted" ]; then return; fi
  python=$(find_python)
  echo "bench-peers: $name, with $("$python" --version)" >&2
  rm -rf "${folder:?}/$name"
  "$python" -m venv "$folder/$name"
  if "$folder/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@" 1>&2; then
    echo "$wanted" >"$folder/$name/.wanted"
  else
    echo "bench-peers: $name cannot be installed and is left out" >&2
    rm -rf "${folder:?}/$name"
  fi
}

environment opsdk --constraint ../constraints.txt --editable .. uvloop
environment lightkube lightkube==1.0.1
environment kubernetes-asyncio kubernetes-asyncio==36.1.0
environment kopf kopf==1.45.2 lightkube==1.0.1
environment cloudcoil cloudcoil==0.6.0
if command -v go >/dev/null; then
  (cd go && GOTOOLCHAIN=${GOTOOLCHAIN:-local} go build -mod=readonly -trimpath -o "$folder/bin/" ./... 1>&2)
else
  echo "bench-peers: no go on PATH, so there is no loader: bench/run.py operators needs it" >&2
fi
echo "$folder"

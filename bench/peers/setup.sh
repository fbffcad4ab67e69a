#!/usr/bin/env bash
# Makes .venv-peers: the contestants that are Python packages, apart from our own environment. Does nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/../.."

stamp=.venv-peers/.setup
fingerprint="$(cat bench/peers/*.txt bench/peers/setup.sh | cksum)"
if [ -x .venv-peers/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$fingerprint" ]; then exit 0; fi

echo "setup: installing the benchmark's peers into .venv-peers"
[ -x .venv-peers/bin/python ] || .venv/bin/python -m venv .venv-peers
.venv-peers/bin/python -m pip install --quiet -c bench/peers/constraints.txt -r bench/peers/requirements.txt
printf '%s\n' "$fingerprint" >"$stamp"

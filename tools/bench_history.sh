#!/bin/sh
# Only Debian's python3 finds Debian's matplotlib, and it need not be the first on PATH.
here="$0.runfiles/cell/tools"
[ -d "$here" ] || here=$(dirname "$0")
exec /usr/bin/python3 "$here/bench_history.py" "$@"

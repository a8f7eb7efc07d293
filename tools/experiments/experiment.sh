#!/bin/sh
# Debian's matplotlib is seen by Debian's python3 alone, which need not be the first on PATH.
here="$0.runfiles/cell/tools/experiments"
[ -d "$here" ] || here=$(dirname "$0")
exec /usr/bin/python3 "$here/experiment.py" "$@"

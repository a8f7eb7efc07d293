#!/bin/sh
# Debian's matplotlib is seen by Debian's python3 alone, which need not be the first on PATH.
exec /usr/bin/python3 "$(dirname "$0")/experiment.py" "$@"

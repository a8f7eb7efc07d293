#!/bin/sh
# As experiment.sh.
exec /usr/bin/python3 "$(dirname "$0")/load_spike.py" "$@"

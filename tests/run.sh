#!/bin/sh
# Runs a program as a test: its path, then its arguments.
exec "$@"

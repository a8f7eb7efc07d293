#!/bin/sh
# Runs a program as a test. Arguments: the program's path, then its arguments.
exec "$@"

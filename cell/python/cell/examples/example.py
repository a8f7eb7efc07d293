"""Helps the examples to read their command lines, and to end with the right status.

Exit status: 0 done, 1 something is not there or not as it should be, 2 an error. An error is one line on standard error,
which begins with the program's name.
"""

import argparse
import os
import re
import signal
import sys
import time

import cell

DONE, WRONG, ERROR = 0, 1, 2
# The longest part of a key, so that whole keys, and bounds of scans, have at most the 226 bytes of keys.
PART_BYTES_MAX = 100
TIME_MAX_US = 9_999_999_999_999_999  # The latest time that a key can have: 16 digits, in the year 2286.


class ExampleError(Exception):
    """Ends the program with one line on standard error."""


class Parser(argparse.ArgumentParser):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, allow_abbrev=False, **options)

    def error(self, message):
        print(f"{self.prog.split()[0]}: {message}", file=sys.stderr)
        sys.exit(ERROR)


def parser(program, description, modules_text):
    """Makes a parser with the flags that name the cluster. Its help ends with the text of the program's file."""
    made = Parser(prog=program, description=description, epilog=modules_text + "\n\nExit status: 0 done, 1 not there or not as it "
                  "should be, 2 error (one line on standard error).", formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--cluster", default=os.environ.get("CELL_CLUSTER", ""), help="its directory, or zk://HOST:PORT[,HOST:PORT...]/NAME (default: CELL_CLUSTER)")
    made.add_argument("--fabric", choices=["auto", "shm", "tcp", "verbs"], help="how to reach servers")
    made.add_argument("--secret-file", help="file with the secret by which this client proves who it is, if the cluster has one")
    for name in ("authority", "certificate", "key"):
        made.add_argument(f"--tls-{name}", help=f"PEM file with the {name}, if the cluster uses certificates")
    return made


def connect(flags):
    """Opens the client of a program's flags."""
    if not flags.cluster:
        raise ExampleError("no cluster was given: use --cluster DIR, or set CELL_CLUSTER=DIR")
    return cell.connect(flags.cluster, fabric=flags.fabric, secret_file=flags.secret_file, tls_authority=flags.tls_authority,
                        tls_certificate=flags.tls_certificate, tls_key=flags.tls_key)


def run(program, flags):
    """Calls the command that was parsed, as flags.command(client, flags). Returns the program's exit status."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with connect(flags) as client:
            status = flags.command(client, flags)
            client.finish_transactions()  # The next reader need not wait.
        sys.stdout.flush()
        return status
    except (cell.Error, ExampleError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return ERROR
    except OSError as error:
        what = "read standard input" if isinstance(error, IsADirectoryError) else "write to standard output"
        print(f"{program}: cannot {what}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(ERROR)  # At its end the interpreter would try, and fail, to write its output again.


def show(*fields):
    """Writes a line of fields with tabs in between: bytes as they are, all else as text."""
    sys.stdout.buffer.write(b"\t".join(field if isinstance(field, bytes) else str(field).encode() for field in fields) + b"\n")


def quoted(data):
    """Returns bytes for a message: escaped, and cut after 48 of them."""
    escapes = {0x22: '\\"', 0x5C: "\\\\", 0x27: "\\'", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
    shown = "".join(escapes.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}") for byte in data[:48])
    return f'"{shown}"' + (f"... ({len(data)} bytes)" if len(data) > 48 else "")


def argument_bytes(text):
    return os.fsencode(text)


def part_of_key(text):
    """Accepts one part of a key: not empty, and without spaces and slashes."""
    data = os.fsencode(text)
    if not data or b"/" in data or b" " in data:
        raise argparse.ArgumentTypeError(f"{quoted(data)} is empty, or has a space or a slash")
    if len(data) > PART_BYTES_MAX:
        raise argparse.ArgumentTypeError(f"{quoted(data)} has {len(data)} bytes, and the most is {PART_BYTES_MAX}")
    return data


def whole_number(low, high):
    """Makes a type of arguments: whole numbers from `low` to `high`."""

    def convert(text):
        if re.fullmatch(r"[0-9]+", text) and low <= int(text) <= high:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text or quoted(b'')} is not a whole number from {low} to {high}")

    return convert


def seconds(low, high):
    """Makes a type of arguments: numbers of seconds from `low` to `high`."""

    def convert(text):
        if re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text) and low <= float(text) <= high:
            return float(text)
        raise argparse.ArgumentTypeError(f"{text or quoted(b'')} is not a number from {low} to {high}")

    return convert


def number_in(key, text):
    """Returns the number that the text is, in decimal. `key` is named in the error."""
    if not re.fullmatch(rb"[0-9]{1,20}", text):
        raise ExampleError(f"{quoted(key)}: {quoted(text)} is not a decimal number")
    return int(text)


def now_us():
    """Returns the time of this machine's clock, in microseconds since the Unix epoch."""
    return time.time_ns() // 1000


def time_digits(time_us):
    """Returns a time with zeros in front, so that keys that have it are in the order of their times."""
    return b"%016d" % time_us

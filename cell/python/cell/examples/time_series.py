"""Keeps series of points in the order of their times: range queries, the newest points, figures of each minute or day,
and retention.

Shows what a sorted store is good for: the points of a series are neighbours, so a range of time is a range of keys.

Keys: series/NAME/0001718000000000 has the value of a point, in decimal. The number is the point's time in microseconds
since the Unix epoch, with zeros in front, because keys are compared byte by byte: without the zeros, 10 would come before
9. (8 bytes of a big-endian number would have the same order and be shorter, but nobody could read them in `cellctl scan`.
Little-endian numbers have another order.)

Why there are no transactions: each point is one pair, and nothing depends on two of them. A point with the time of an
earlier one replaces it. So an append does the same when it is done twice, and one whose answer was lost (MaybeApplied) is
simply done again.

What to look at:
- `last` scans backwards with a limit. It reads the newest points alone, however long the series is.
- `names_of` skips from one series to the next. It reads one key of each.
- `retain` deletes what is older than a moment by Client.delete_range. The servers do the work, in slices of some leaves, and
  writers go on in between. It cannot meet a point that writers append, since those are newer than the moment. A late one
  that is older may stay, and the next `retain` deletes it. After an error, run it again.
- `append --keep` is the other way: each point has an expiry, and the servers remove it by themselves. Nobody has to call
  `retain` then, but how long a point is kept is decided when it is written.
"""

import asyncio
import itertools
import math
import re
import sys

import cell.asyncio
from cell.examples import example
from cell.examples.example import DONE, ExampleError, show

SERIES = b"series/"
IN_FLIGHT = 128


def prefix_of(name):
    return SERIES + name + b"/"


def key_of(name, time_us):
    return prefix_of(name) + example.time_digits(time_us)


def end_of(prefix):
    """Returns the first key behind those that begin with a prefix, which ends with a slash."""
    return prefix[:-1] + b"0"


def parse_value(text):
    """Returns the number that the text is, or None."""
    value = float(text) if re.fullmatch(rb"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", text) else math.inf
    return value if math.isfinite(value) else None


def text_of(value):
    """Returns the shortest text of a number."""
    return repr(value).removesuffix(".0")


def point_in(name, key, text):
    """Returns the time and the value of a pair."""
    value = parse_value(text)
    if value is None:
        raise ExampleError(f"{example.quoted(key)}: {example.quoted(text)} is not a number")
    return example.number_in(key, key[len(prefix_of(name)):]), value


def expiry_of(flags, time_us):
    return None if flags.keep is None else time_us / 1e6 + flags.keep


def append(client, flags):
    value = parse_value(flags.value)
    if value is None:
        raise ExampleError(f"{example.quoted(flags.value)} is not a number")
    time_us = example.now_us() if flags.time is None else flags.time
    client.put(key_of(flags.name, time_us), text_of(value), expires_at=expiry_of(flags, time_us))
    return DONE


def load(_, flags):
    """Appends the points on standard input, with many puts in flight. If two lines have the same time, either may stay.
    After an error, load the same lines again."""

    def points():
        for number, line in enumerate(sys.stdin.buffer, 1):
            parts = line.removesuffix(b"\n").split(b"\t", 1)
            value = parse_value(parts[1]) if len(parts) == 2 else None
            if value is None or not re.fullmatch(rb"[0-9]{1,20}", parts[0]) or int(parts[0]) > example.TIME_MAX_US:
                raise ExampleError(f"line {number}: {example.quoted(line.rstrip())} is not TIME TAB VALUE")
            yield int(parts[0]), value

    async def put_all():
        client = await cell.asyncio.connect(flags.cluster, fabric=flags.fabric, secret_file=flags.secret_file, tls_authority=flags.tls_authority,
                                            tls_certificate=flags.tls_certificate, tls_key=flags.tls_key)
        try:
            count, rest = 0, points()
            while some := list(itertools.islice(rest, IN_FLIGHT)):
                await asyncio.gather(*(client.put(key_of(flags.name, at), text_of(value), expires_at=expiry_of(flags, at)) for at, value in some))
                count += len(some)
            return count
        finally:
            await client.close()

    show(f"{asyncio.run(put_all())} points were loaded")
    return DONE


def points_of(client, flags):
    """Yields the points from flags.start until before flags.end, in the order of their times."""
    start = key_of(flags.name, flags.start)
    end = end_of(prefix_of(flags.name)) if flags.end is None else key_of(flags.name, flags.end)
    if end <= start:
        raise ExampleError("--to is not above --from")
    for key, text in client.scan(start, end):
        yield point_in(flags.name, key, text)


def list_range(client, flags):
    for time_us, value in points_of(client, flags):
        show(time_us, text_of(value))
    return DONE


def last(client, flags):
    for key, text in client.scan(prefix=prefix_of(flags.name), reverse=True, limit=flags.count):
        time_us, value = point_in(flags.name, key, text)
        show(time_us, text_of(value))
    return DONE


def buckets(client, flags):
    """Writes the figures of each bucket that has points. The points come in order, so one bucket is in memory at a time."""
    for start, points in itertools.groupby(points_of(client, flags), lambda point: point[0] - point[0] % flags.width):
        count, least, greatest, total = 0, math.inf, -math.inf, 0.0
        for _, value in points:
            count, least, greatest, total = count + 1, min(least, value), max(greatest, value), total + value
        show(start, count, text_of(least), text_of(total / count), text_of(greatest))
    return DONE


def names_of(client):
    """Yields the names of all series. After a name has been found, its points are skipped by a scan that begins behind
    them."""
    start = SERIES
    while True:
        for key in client.scan(start, end_of(SERIES), limit=1, keys_only=True):
            name, slash, _ = key[len(SERIES):].partition(b"/")
            if not slash:
                raise ExampleError(f"{example.quoted(key)} is no key of a point")
            break
        else:
            return
        yield name
        start = end_of(prefix_of(name))


def list_names(client, _):
    for name in names_of(client):
        show(name)
    return DONE


def retain(client, flags):
    """Deletes the points of a series, or of all, that are older than a moment."""
    if (flags.before is None) == (flags.older_than is None):
        raise ExampleError("give either --before or --older-than")
    before = max(0, example.now_us() - int(flags.older_than * 1e6)) if flags.before is None else flags.before
    names = list(names_of(client)) if flags.name is None else [flags.name]
    deleted = sum(client.delete_range(prefix_of(name), key_of(name, before)) for name in names)
    show(f"{deleted} points were deleted")
    return DONE


def main():
    time_us = example.whole_number(0, example.TIME_MAX_US)
    parser = example.parser("time_series", "Keep series of points by time. Times are in microseconds since the Unix epoch.", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name, command, text):
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=command)
        return made

    add_point = add("append", append, "store a point, in the place of one of the same time")
    add_points = add("load", load, "store the points on standard input, each a line TIME TAB VALUE")
    in_range = add("range", list_range, "list the points of a range of time as TIME TAB VALUE")
    newest = add("last", last, "list the newest points, the newest first")
    figures = add("buckets", buckets, "list for each bucket of time that has points: its start, their number, least, mean and greatest")
    add("list", list_names, "list the names of all series")
    old = add("retain", retain, "delete the points of a series, or of all, that are older than a moment")
    for command in (add_point, add_points, in_range, newest, figures):
        command.add_argument("name", type=example.part_of_key)
    old.add_argument("name", type=example.part_of_key, nargs="?")
    add_point.add_argument("value", type=example.argument_bytes, help="a decimal number")
    add_point.add_argument("--time", type=time_us, help="time of the point (default: now)")
    for command in (add_point, add_points):
        command.add_argument("--keep", type=example.seconds(0.001, 1e9), help="seconds after its time when a point expires (default: never)")
    for command in (in_range, figures):
        command.add_argument("--from", dest="start", type=time_us, default=0, help="first time (default: %(default)s)")
        command.add_argument("--to", dest="end", type=time_us, help="time before which the range ends (default: it has no end)")
    newest.add_argument("--count", type=example.whole_number(1, 1_000_000), default=10, help="how many points (default: %(default)s)")
    figures.add_argument("--width", type=example.whole_number(1, example.TIME_MAX_US), required=True, help="width of a bucket in microseconds")
    old.add_argument("--before", type=time_us, help="delete what is older than this time")
    old.add_argument("--older-than", type=example.seconds(0, 1e9), help="delete points that are older than this, in seconds")
    return example.run("time_series", parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())

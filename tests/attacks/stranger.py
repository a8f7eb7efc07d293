"""Runs code as a stranger: another user of the same machine, without any group of ours.

    answer = stranger.run(lambda: os.listdir("/tmp/cell"))
    answer.value, answer.error    # What it returned, or the exception that it raised, as text.

Only root can become another user: call skip_unless_root(self) first.
"""

import collections
import os
import pickle
import resource
import signal
import tempfile
from pathlib import Path

STRANGER = 65534  # nobody

Answer = collections.namedtuple("Answer", ["value", "error"])


def skip_unless_root(test):
    """Skips a test if this process cannot become another user."""
    if os.geteuid() != 0:
        test.skipTest("only root can become another user")
    if run(os.geteuid).value != STRANGER:
        test.skipTest("this user namespace has no other user")


def become():
    """Makes this process the stranger's, for good. Also for preexec_fn of subprocess.Popen."""
    os.setgroups([])
    os.setresgid(STRANGER, STRANGER, STRANGER)
    os.setresuid(STRANGER, STRANGER, STRANGER)
    os.chdir("/")
    os.umask(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(call, seconds=60):
    """Calls a function as the stranger, in a process of its own, and returns its Answer. The value must be of plain
    types. The process is killed after `seconds`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(seconds)
            os.close(reading)
            become()
            try:
                answer = Answer(call(), None)
            except BaseException as error:  # pylint: disable=broad-except
                answer = Answer(None, f"{type(error).__name__}: {error}")
            with os.fdopen(writing, "wb") as out:
                pickle.dump(tuple(answer), out)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        told = answers.read()
    os.waitpid(child, 0)
    return Answer(*pickle.loads(told)) if told else Answer(None, f"it ended, or took more than {seconds} s")


def open_parent(prefix):
    """Returns a new directory in /tmp in which everyone can make files, as in /tmp. The caller deletes it."""
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    directory.chmod(0o1777)
    return directory

"""Keeps a cluster's directory for its user alone.

Whoever can write to the directory, or put another in its place, can read and replace the data, and have `up` and the
servers write to a file of his choosing through a symbolic link. Trusted are this user, and root. The rules are those of
cell/io/file/private_directory.h, which servers apply.

The decisions (own_refused, above_refused, link_refused) are pure: they say why something is refused, or return None.
"""

import errno
import os
import shlex
import stat
from pathlib import Path

from tools.cluster_directory import ClusterError

LINKS_MAX = 40  # As many as Linux follows.
ALL_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def trusted_users():
    """Returns whom the files of this user and of root belong to, as far as this process can tell."""
    users = {0, os.geteuid()}
    try:
        ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        if not any(outside == "0" for _, outside, _ in ranges):
            # In a user namespace that does not map root, root's files appear as this user's.
            users.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    except OSError:
        pass
    return users


def own_refused(path, owner, mode, trusted):
    if not stat.S_ISDIR(mode):
        return f"{path} is not a directory"
    if owner not in trusted:
        return f"{path} belongs to user {owner}, who could read and replace what is kept there: use another directory (--dir)"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return (f"other users can write to {path} (mode {stat.S_IMODE(mode):o}): use another directory (--dir), or look that all in it is "
                f"yours and close it to others (chmod 700 {shlex.quote(str(path))})")
    return None


def above_refused(path, owner, mode, trusted):
    if not stat.S_ISDIR(mode):
        return f"{path} is not a directory"
    if owner not in trusted:
        return f"{path} belongs to user {owner}, who could replace what is in it: use a directory elsewhere (--dir)"
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return (f"other users can replace what is in {path} (mode {stat.S_IMODE(mode):o}): use a directory elsewhere (--dir), or take that "
                f"right away (chmod o-w {shlex.quote(str(path))})")
    return None


def link_refused(path, owner, trusted):
    if owner not in trusted:
        return f"{path} is a symbolic link of user {owner}, who decides where it leads: use another directory (--dir)"
    return None


def check(directory):
    """Checks the directory, all directories above it, and all links on the way, as far as they exist. Returns whether
    the directory exists. Raises ClusterError."""
    trusted = trusted_users()
    path = Path(directory).absolute()
    for _ in range(LINKS_MAX):
        followed = _check_until_link(path, trusted)
        if isinstance(followed, bool):
            return followed
        path = followed
    raise ClusterError(f"{directory} leads through too many symbolic links")


def _check_until_link(path, trusted):
    """Returns the path with its first link followed, or, if there is none, whether it exists."""
    for number, name in enumerate(path.parts):
        at = Path(*path.parts[:number + 1])
        try:
            info = os.lstat(at)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise ClusterError(f"cannot look at {at} ({error.strerror}): run this as the user whose it is, or give another --dir") from error
        rest = path.parts[number + 1:]
        if stat.S_ISLNK(info.st_mode):
            why, followed = link_refused(at, info.st_uid, trusted), Path(at.parent, os.readlink(at), *rest)
        else:
            why, followed = (above_refused if rest else own_refused)(at, info.st_uid, info.st_mode, trusted), None
        if why:
            raise ClusterError(why)
        if followed is not None:
            return followed
    return True


def make(directory):
    """Makes the directory and those above it, for this user alone, unless they exist. Returns whether it was made.
    Raises ClusterError if another user could change what is in it."""
    made = not check(directory)
    for path in [*reversed(directory.parents), directory]:
        try:
            if not path.exists():
                path.mkdir(mode=0o700)
        except FileExistsError:
            pass  # Another process was faster. What it made is checked below.
        except OSError as error:
            raise ClusterError(f"cannot create the directory {directory} ({error.strerror}): give --dir a path at which this user can create one") from error
    check(directory)
    return made


def check_content(directory):
    """Checks that nothing in the directory belongs to another user, who may have been able to write to it before."""
    trusted = trusted_users()
    for path in directory.iterdir():
        owner = path.lstat().st_uid
        if owner not in trusted:
            raise ClusterError(f"{path} belongs to user {owner}, and must not be in a cluster's directory: remove it, or use another --dir")


def close_to_others(directory):
    """Takes the rights of other users away that an earlier release left them. Returns whether there were any."""
    info = os.stat(directory)
    if info.st_uid != os.geteuid() or not info.st_mode & ALL_OTHERS:
        return False
    os.chmod(directory, stat.S_IMODE(info.st_mode) & ~ALL_OTHERS)
    return True


def open_to_append(path):
    """Opens a file of this user to append to it, and makes it if it does not exist. Follows no link."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ClusterError(f"{path} is not a file: remove it") from error
        raise
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_nlink != 1:
        os.close(fd)
        raise ClusterError(f"{path} is not a file of this user alone: remove it")
    os.fchmod(fd, 0o600)
    return os.fdopen(fd, "ab")

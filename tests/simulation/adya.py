"""Runs adya (https://crates.io/crates/adya), a checker of isolation, and installs it first if need be.

`adya_history.h` says what it is given.
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

VERSION = "0.1.0"


class Unavailable(Exception):
    """adya is not installed and cannot be installed. The message says why."""


def program() -> Path:
    """Returns adya's path in the user's cache, where this installs it once, with cargo. That takes a minute of a core.

    Raises Unavailable.
    """
    home = Path("~").expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "cell-adya" / VERSION
    adya = cache / "bin" / "adya"
    if adya.exists():
        return adya
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(home / ".cargo/bin")])
    cargo = shutil.which("cargo", path=path)
    if cargo is None:
        raise Unavailable("adya is not installed, and there is no cargo to install it with (https://rustup.rs)")
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if adya.exists():
            return adya
        command = [cargo, "install", "--quiet", "--locked", "--no-default-features", "--root", str(cache), "adya", "--version", VERSION]
        print("installing adya:", *command, flush=True)
        done = subprocess.run(command, env={**os.environ, "HOME": str(home), "PATH": path}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"adya is not installed, and cargo cannot install it: {done.stdout.strip()[-500:]}")
    return adya


def verdicts(adya: Path, histories: list[Path], order: Path) -> dict[Path, str]:
    """Returns for each history whether it is strictly serializable: "true", "false" or "unknown".

    order: the file with the order of the writers of all of these histories.
    """
    command = [adya, "check", "--model", "rw-register", "--consistency-models", "strict-serializable", "--transaction-order", order, *histories]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {}
    for line in done.stdout.splitlines():
        name, tab, verdict = line.rpartition("\t")
        if tab and Path(name) in histories:
            found[Path(name)] = verdict
    if done.returncode not in (0, 1, 2) or len(found) != len(histories):
        raise RuntimeError(f"adya ended with {done.returncode}: {done.stderr.strip()}")
    return found

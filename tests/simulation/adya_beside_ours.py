"""Compares the verdicts of adya and of our checker about random histories of transactions, right and wrong ones.

    ./bazelw run //tests/simulation:adya_beside_ours -- SEEDS [small|larger]

A small history is valid to adya if it is for some choice of the absences that its reads saw (adya_history.h). For larger
ones there are too many choices. Besides, this counts what adya says of the one file that the simulation would write.
Ends with 1 if the checkers disagree about a history.
"""

import collections
import concurrent.futures
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.simulation import adya

PROGRAM = sys.argv[1]
AT_ONCE = 100  # Seeds whose files are there at one time, by thread.


def compare(program: Path, size: str, first: int) -> list[tuple[int, str, str, str]]:
    """Returns for some seeds: the seed, our verdict, adya's, and adya's about the one file."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        lines = subprocess.run([PROGRAM, directory, str(first), str(AT_ONCE), size], capture_output=True, text=True, check=True).stdout
        for seed, ours, written in map(str.split, lines.splitlines()):
            base = Path(directory)
            one = base / f"{seed}.one"
            if not one.exists():
                found.append((int(seed), ours, "not asked", "not asked"))
                continue
            files = [base / f"{seed}.{i}" for i in range(int(written))]
            verdicts = adya.verdicts(program, [*files, one], base / f"{seed}.order")
            of_all = {verdicts[file] for file in files}
            theirs = next((verdict for verdict in ("true", "unknown", "false") if verdict in of_all), "not asked")
            found.append((int(seed), ours, theirs, verdicts[one]))
    return found


def main() -> int:
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    size = sys.argv[3] if len(sys.argv) > 3 else "small"
    program = adya.program()
    exact, one_file, differ = collections.Counter(), collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda first: compare(program, size, first), range(1, seeds + 1, AT_ONCE)):
            for seed, ours, theirs, of_one in found:
                exact[ours, theirs] += 1
                one_file[ours, of_one] += 1
                # Unknown to adya are histories in which nothing depends on anything, which are right. An order that our
                # checker has found must be valid. What it refuses may be valid in one file, since reads are left out there.
                if (ours == "yes" and "false" in (theirs, of_one)) or (ours == "no" and theirs in ("true", "unknown")):
                    differ.append(seed)
    for title, counts in (("all choices of absences", exact), ("the file that the simulation would write", one_file)):
        print(f"{title}:")
        for (ours, theirs), count in sorted(counts.items()):
            print(f"  strictly serializable to us: {ours:4} valid to adya: {theirs:10} {count}")
    if differ:
        print(f"the checkers disagree about {len(differ)}: seeds {differ[:20]}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())

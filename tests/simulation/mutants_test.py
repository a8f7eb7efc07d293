"""Checks that the simulation finds each mutant (cell/base/mutant.h): by the seed that is named here, or, because
changes of the draws move the seeds, by one of the first seeds.

docs/testing.md says what each needs to be found.
"""

import subprocess
import sys
import time

# The seed that finds it, and how many seeds from 1 on are tried if it does not do so any more.
MUTANTS = {
    "no-fence": (83, 250),
    "synced-too-early": (12, 30),
    "no-server-lease": (1206, 4000),
    "no-version-check": (2, 30),
    "no-node-crc": (27, 81),
    "no-extent-crc": (1, 30),
    "lost-separator": (1, 30),
    "right-link-too-early": (19, 57),
    "old-copy-stays": (518, 1560),
    "sealed-too-late": (1, 30),
    "epoch-unchecked": (5, 630),
    "table-lease-unchecked": (3539, 4000),
    "stale-cache-trusted": (5, 30),
    "cuckoo-from-front": (990, 5000),
    "no-second-look": (339, 1000),
    "applied-before-log": (4, 30),
    "no-directory-sync": (17, 60),
    "checkpoint-unsynced": (12, 60),
    "failed-plainly": (58, 180),
    "scan-gives-empty": (69, 210),
    "scan-ends-early": (43, 130),
    "scan-skips-unleased": (5, 30),
    "no-fetch-crc": (141, 420),
    "uploads-of-the-dead": (122, 370),
    "sleeps-past-deadline": (2, 30),
    "descriptors-fail-logs": (48, 150),
    "cancelled-plainly": (1, 180),
    "error-is-refusal": (760, 4000),
    "foreign-format-torn": (16, 60),
    "change-reads-regions": (1, 30),
    "leaf-ahead-unchecked": (11, 70),
    "low-key-unchecked": (19, 60),
    "merged-node-stays": (1, 30),
    "joined-stays": (781, 2400),
    "joined-part-stays": (19, 1300),
    "expired-by-reads": (1, 30),
    "expired-before-put": (40, 120),
    "evicts-all": (21, 70),
    "moved-from-leaf": (27, 90),
    "epochs-begin-again": (435, 1300),
    "rights-kept": (5, 30),
    "readers-kept": (5, 30),
    "scan-past-grant": (262, 790),
    "range-by-begin": (293, 880),
    "tables-of-old": (229, 690),
    "unguarded-append": (791, 4000),
    "append-repeated": (26, 80),
    "condition-of-stored": (5, 30),
    "refused-too-early": (14, 45),
    "applied-again": (149, 450),
    "outcomes-unread": (149, 450),
    "table-age-ignored": (3539, 8000),
    "locks-unseen": (23, 70),
    "held-unshown": (23, 70),
    "commit-piecemeal": (3247, 9000),
    "snapshot-unstill": (322, 1300),
    "snapshot-written": (411, 3300),
    "snapshot-goes-on": (1497, 4500),
    "snapshot-keeps-last": (1, 30),
    "snapshot-unsplit": (24, 80),
}
# Their seeds are sought among clusters whose logs are in files. The first and the last are protections of files.
WITHOUT_OBJECTS = {"no-fence", "no-server-lease", "cuckoo-from-front", "no-directory-sync"}
# Only clients that make transactions find these, and only those over tables, or that take snapshots, the next ones.
WITH_TRANSACTIONS = {"locks-unseen", "commit-piecemeal"}
WITH_TABLES = {"held-unshown"}
WITH_SNAPSHOTS = {"snapshot-unstill", "snapshot-written", "snapshot-goes-on", "snapshot-keeps-last", "snapshot-unsplit"}

# No seed is known that finds these. docs/testing.md names the test that finds each, if there is one.
ELSEWHERE = {"held-still-below", "prepare-unsynced", "no-tombstone", "reads-unheld", "token-of-locked-leaf", "token-unchecked", "token-unleased",
             "open-forgotten", "abort-unknown", "no-lease-wait", "lease-by-follower", "held-unleased", "stamp-kept",
             "stamps-again", "refused-forgotten", "outcomes-stay", "outcomes-unsplit", "outcomes-trimmed",
             "reused-node-visible", "join-unlogged", "join-leftovers", "join-always-counts", "joins-without-cut",
             "cleared-late", "compacts-frozen", "root-unchecked", "gone-by-id", "made-before-entered",
             "segments-fenced-first", "table-age-from-answer", "fence-checked-too-early", "older-table-taken",
             "part-of-any-version"}


def draws(mutant: str) -> list[str]:
    """Returns the arguments of `sim` that say which clusters and clients the mutant's seeds are sought among."""
    without = ["--without", "objects"] if mutant in WITHOUT_OBJECTS else []
    transactions = ["--with", "transactions"] if mutant in WITH_TRANSACTIONS | WITH_TABLES | WITH_SNAPSHOTS else []
    more = [argument for name, mutants in (("tables", WITH_TABLES), ("snapshots", WITH_SNAPSHOTS)) if mutant in mutants for argument in ("--with", name)]
    return without + transactions + more


def wrong_seed(sim: str, mutant: str, *arguments: str) -> tuple[int, str] | None:
    """Returns the first wrong seed, and what is wrong."""
    run = subprocess.run([sim, *arguments, *draws(mutant), "--mutant", mutant, "--twice-every", "0", "--shrink-seconds", "0"],
                         capture_output=True, text=True, errors="replace")
    lines = run.stdout.splitlines()
    found = next((i for i, line in enumerate(lines) if line.endswith("is wrong")), None)
    if run.returncode != 1 or found is None:
        return None
    return int(lines[found].split()[1]), lines[found + 1][:110]


def main() -> int:
    sim = sys.argv[1]
    listed = {line.split()[0] for line in subprocess.run(
        [sim, "--list-mutants"], check=True, capture_output=True, text=True).stdout.splitlines()}
    if listed != set(MUTANTS) | ELSEWHERE:
        print(f"not in this test, or not in the program: {sorted(listed ^ (set(MUTANTS) | ELSEWHERE))}")
        return 1
    missed = []
    for mutant, (seed, seeds) in MUTANTS.items():
        begun = time.monotonic()
        found = wrong_seed(sim, mutant, "--seed", str(seed))
        moved = ""
        if found is None:
            found = wrong_seed(sim, mutant, "--seeds", str(seeds))
            moved = f" (not by seed {seed} any more: name this one instead)"
        if found is None:
            missed.append(mutant)
            print(f"{mutant}: NOT FOUND by seed {seed}, nor in {seeds} seeds")
        else:
            print(f"{mutant}: {time.monotonic() - begun:.1f} s, seed {found[0]}{moved}: {found[1]}", flush=True)
    # Without a mutant nothing is wrong with these seeds.
    wrong = []
    for seed, *also in sorted({(seed, *draws(mutant)) for mutant, (seed, _) in MUTANTS.items()}):
        clean = subprocess.run([sim, "--seed", str(seed), *also, "--shrink-seconds", "0"], capture_output=True)
        if clean.returncode != 0:
            wrong.append(seed)
    if wrong:
        print(f"wrong without any mutant: seeds {wrong}")
    return 1 if missed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())

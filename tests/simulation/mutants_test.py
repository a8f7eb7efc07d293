"""Each mutant (cell/base/mutant.h) is found by the simulation: by the seed that is named here, or, since a change of what
seeds draw moves them, by one of the first so many.

docs/testing.md says what each needs to be found.
"""

import subprocess
import sys
import time

# What seeds drew before the model grew: some mutants are found soonest by that.
NARROW = [argument for draw in ("large values", "short timeouts", "scan modes", "mixes", "regions max", "clients go",
                                "disk steps", "disk full", "slow directory", "no descriptors", "membership error",
                                "leaderless", "freeze") for argument in ("--without", draw)]

# The seed that finds it, how many from 1 on are tried if that does not any more (about three times as many), and what
# they draw.
MUTANTS = {
    "no-fence": (4, 90, NARROW),
    "synced-too-early": (9, 30, []),
    "no-lease-wait": (231, 700, NARROW),
    "no-server-lease": (694, 2000, NARROW),
    "no-version-check": (19, 70, []),
    "no-node-crc": (4, 90, []),
    "no-extent-crc": (4, 30, NARROW),
    "lost-separator": (4, 30, []),
    "right-link-too-early": (19, 60, []),
    "old-copy-stays": (226, 700, NARROW),
    "sealed-too-late": (1, 30, []),
    "epoch-unchecked": (28, 90, NARROW),
    "table-lease-unchecked": (1111, 3300, NARROW),
    "stale-cache-trusted": (4, 45, []),
    "cuckoo-from-front": (76, 230, []),
    "no-second-look": (53, 160, NARROW),
    "applied-before-log": (4, 30, []),
}


def wrong_seed(sim: str, mutant: str, *arguments: str) -> tuple[int, str] | None:
    """The first wrong seed, and what is wrong."""
    run = subprocess.run([sim, *arguments, "--mutant", mutant, "--twice-every", "0", "--shrink-seconds", "0"],
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
    if listed != set(MUTANTS):
        print(f"not in this test, or not in the program: {sorted(listed ^ set(MUTANTS))}")
        return 1
    missed = []
    for mutant, (seed, seeds, draws) in MUTANTS.items():
        begun = time.monotonic()
        found = wrong_seed(sim, mutant, "--seed", str(seed), *draws)
        moved = ""
        if found is None:
            found = wrong_seed(sim, mutant, "--seeds", str(seeds), *draws)
            moved = f" (not by seed {seed} any more: name this one instead)"
        if found is None:
            missed.append(mutant)
            print(f"{mutant}: NOT FOUND by seed {seed}, nor in {seeds} seeds")
        else:
            print(f"{mutant}: {time.monotonic() - begun:.1f} s, seed {found[0]}{moved}: {found[1]}", flush=True)
    # And without one of them nothing is wrong, by those seeds.
    wrong = []
    for seed, draws in sorted({(seed, tuple(draws)) for seed, _, draws in MUTANTS.values()}):
        clean = subprocess.run([sim, "--seed", str(seed), *draws, "--shrink-seconds", "0"], capture_output=True)
        if clean.returncode != 0:
            wrong.append(seed)
    if wrong:
        print(f"wrong without any mutant: seeds {wrong}")
    return 1 if missed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())

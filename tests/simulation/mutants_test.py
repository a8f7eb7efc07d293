"""Each mutant (cell/base/mutant.h) is found by the simulation within its stated number of seeds.

docs/testing.md says what each needs to be found. The numbers are about three times what it took when they were written
down: a change of what seeds draw moves them.
"""

import subprocess
import sys

# Seeds, from 1 on, among which one must be wrong.
SEEDS = {
    "no-fence": 180,
    "synced-too-early": 30,
    "no-lease-wait": 700,
    "no-server-lease": 1300,
    "no-version-check": 70,
    "no-node-crc": 150,
    "no-extent-crc": 30,
    "lost-separator": 30,
    "right-link-too-early": 60,
    "old-copy-stays": 270,
    "sealed-too-late": 30,
    "epoch-unchecked": 40,
    "table-lease-unchecked": 3300,
    "stale-cache-trusted": 45,
    "cuckoo-from-front": 230,
    "no-second-look": 60,
    "applied-before-log": 30,
}


def main() -> int:
    sim = sys.argv[1]
    listed = {line.split()[0] for line in subprocess.run(
        [sim, "--list-mutants"], check=True, capture_output=True, text=True).stdout.splitlines()}
    if listed != set(SEEDS):
        print(f"not in this test, or not in the program: {sorted(listed ^ set(SEEDS))}")
        return 1
    missed = []
    for mutant, seeds in SEEDS.items():
        run = subprocess.run([sim, "--seeds", str(seeds), "--mutant", mutant, "--twice-every", "0"],
                             capture_output=True, text=True, errors="replace")
        lines = run.stdout.splitlines()
        found = next((i for i, line in enumerate(lines) if line.endswith("is wrong")), None)
        if run.returncode != 1 or found is None:
            missed.append(mutant)
            print(f"{mutant}: NOT FOUND in {seeds} seeds")
        else:
            print(f"{mutant}: {lines[found]}:{lines[found + 1][:110]}")
    # And without one of them nothing is wrong.
    clean = subprocess.run([sim, "--seeds", "20"], capture_output=True, text=True, errors="replace")
    print(clean.stdout)
    return 1 if missed or clean.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())

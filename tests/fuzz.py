"""Runs fuzzers: all of those in tests/BUILD, each for some minutes, or one for some inputs as a test.

Each begins with its corpus in the tree (tests/corpus/NAME) and with what earlier runs kept in the directory of finds
(DIR/NAME/corpus), where it adds inputs that reach new code. An input that crashes a fuzzer, hangs it or causes a
sanitizer's report is a finding: it is kept in DIR/NAME/findings, and the exit status is 1. A fuzzer continues after
a finding.
"""

import argparse
import concurrent.futures
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

FINDINGS_MAX = 10  # Per fuzzer. Shallow findings would be found again and again.
SLICE_S = 60  # With --cpu, the minimum duration of a run.
GRACE_S = 120  # Beyond its time, until a fuzzer that does not end counts as hung. With --cpu ten times as long.
INPUT_S = 25  # For one input; with --cpu ten times as long.
LOG_SHOWN = 6000  # Characters of a finding's report.
INPUT_BYTES_MAX = 4096


def finds_directory():
    if "TEST_TMPDIR" in os.environ:
        return Path(os.environ["TEST_TMPDIR"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cell-fuzz"


class Fuzzer:
    """One fuzzer with its corpora."""

    def __init__(self, program, finds):
        self.program = Path(program).absolute()
        self.name = self.program.name
        self.seeds = Path(__file__).absolute().parent / "corpus" / self.name  # In the runfiles.
        self.corpus = finds / self.name / "corpus"
        self.findings = finds / self.name / "findings"
        self.log = finds / self.name / "log"
        self.inputs = self.edges = 0
        self.cpu_s = 0.0

    def run(self, args):
        """Runs until the time or the inputs are used up. Returns the summary line and the findings."""
        self.corpus.mkdir(parents=True, exist_ok=True)
        self.findings.mkdir(parents=True, exist_ok=True)
        kept = len(list(self.corpus.iterdir()))
        begin = time.monotonic()
        found = []
        seed = args.seed
        while len(found) < FINDINGS_MAX:
            left = args.minutes * 60 - (self.cpu_s if args.cpu else time.monotonic() - begin)
            if left < 1 or (seed > args.seed and args.runs):
                break
            report = self._run_once(args, max(int(left), SLICE_S) if args.cpu else int(left), seed)
            if report is not None:
                found.append(report)
            elif not args.cpu:
                break
            seed += 1
        new = len(list(self.corpus.iterdir())) - kept
        minutes = (time.monotonic() - begin) / 60
        return (f"{self.name}: {minutes:.1f} min ({self.cpu_s / 60:.1f} min of CPU time), {self.inputs:,} inputs, {self.edges:,} edges reached, "
                f"{new} new inputs kept, {len(found)} findings"), found

    def _run_once(self, args, seconds, seed):
        """Runs until the first finding. Returns the report's path, or None if there is no finding."""
        command = [self.program, f"-seed={seed}", f"-max_total_time={seconds}", f"-artifact_prefix={self.findings}/",
                   f"-max_len={args.input_bytes}", f"-timeout={INPUT_S * (10 if args.cpu else 1)}", "-rss_limit_mb=4096", "-print_final_stats=1"]
        if args.runs:
            command.append(f"-runs={args.runs}")
        command.append(self.corpus)
        if self.seeds.is_dir():
            command.append(self.seeds)
        with open(self.log, "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.corpus.parent)
            status = self._wait(process, seconds + GRACE_S * (10 if args.cpu else 1))
        text = self.log.read_text(errors="replace")
        executed = re.findall(r"number_of_executed_units: (\d+)", text)
        self.inputs += int(executed[-1]) if executed else 0
        self.edges = max([self.edges, *map(int, re.findall(r" cov: (\d+)", text))])
        if status == 0:
            return None
        report = self.findings / f"report-{time.time_ns()}"  # It names the input if that is known.
        report.write_text(text if status is not None else f"{text}\nIt had not ended {GRACE_S} s after its time.\n")
        print(f"{self.name}: a finding\n{text[-LOG_SHOWN:]}\nRun the input again: {self.program} INPUT, of {self.findings}", flush=True)
        return report

    def _wait(self, process, seconds):
        """Waits for a run, and ends it after `seconds`. Returns its exit status, or None if it had not ended. Counts
        its CPU time."""
        deadline = time.monotonic() + seconds
        late = False
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if not late and time.monotonic() > deadline:
                late = True
                process.kill()
            time.sleep(0.1)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s += usage.ru_utime + usage.ru_stime
        return None if late else process.returncode

    def merge(self):
        """Adds inputs to the corpus in the source tree that reach more code than it does."""
        tree = Path(os.environ["BUILD_WORKSPACE_DIRECTORY"]) / "tests" / "corpus" / self.name
        tree.mkdir(parents=True, exist_ok=True)
        before = len(list(tree.iterdir()))
        self.corpus.mkdir(parents=True, exist_ok=True)
        subprocess.run([self.program, "-merge=1", f"-max_len={INPUT_BYTES_MAX}", tree, self.corpus], check=True, cwd=self.corpus.parent,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return f"{self.name}: {len(list(tree.iterdir())) - before} inputs added to {tree}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", help=argparse.SUPPRESS)  # Set in tests/BUILD.
    parser.add_argument("--minutes", type=float, default=60, help="minutes per fuzzer (default: 60)")
    parser.add_argument("--cpu", action="store_true", help="measure --minutes in CPU time, for a machine that is busy with other work")
    parser.add_argument("--runs", type=int, help="maximum number of inputs per fuzzer")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="run only this fuzzer; may be repeated")
    parser.add_argument("--dir", help=f"directory for the inputs that are found (default: {finds_directory()})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of fuzzers that run at the same time (default: one per core)")
    parser.add_argument("--seed", type=int, help="seed of libFuzzer's random choices (default: a new one)")
    parser.add_argument("--input-bytes", type=int, default=INPUT_BYTES_MAX, help=f"maximum size of an input in bytes (default: {INPUT_BYTES_MAX})")
    parser.add_argument("--merge", action="store_true",
                        help="run no fuzzer; add to tests/corpus the inputs of earlier runs that reach more code")
    args = parser.parse_args()
    finds = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), args.dir).resolve() if args.dir else finds_directory()
    if args.seed is None:
        args.seed = random.randrange(1, 1 << 30)
    fuzzers = [Fuzzer(program, finds) for program in args.programs]
    unknown = set(args.only) - {fuzzer.name for fuzzer in fuzzers}
    if unknown:
        parser.error(f"unknown fuzzer {', '.join(sorted(unknown))}: use {', '.join(fuzzer.name for fuzzer in fuzzers)}")
    if args.only:
        fuzzers = [fuzzer for fuzzer in fuzzers if fuzzer.name in args.only]
    if args.merge:
        for fuzzer in fuzzers:
            print(fuzzer.merge(), flush=True)
        return 0
    print(f"{len(fuzzers)} fuzzers, {args.minutes:g} minutes each, {args.jobs} at a time, seed {args.seed}; finds go to {finds}", flush=True)
    findings = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for run in concurrent.futures.as_completed([pool.submit(fuzzer.run, args) for fuzzer in fuzzers]):
            summary, found = run.result()
            print(summary, flush=True)
            for file in found:
                print(f"  {file}", flush=True)
            findings += len(found)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

"""Fetches YCSB's client from Maven Central, compiles the bindings with it, and runs it.

Everything that is made is in a cache directory, and is made once for each state of its sources.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tools import cluster

# "none" is a part of YCSB that stores nothing.
DATABASES = {"cell": "cell.ycsb.CellClient", "redis": "cell.ycsb.RedisClient", "none": "site.ycsb.BasicDB"}
WORKLOADS = "abcdef"
FETCH = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
DEBIAN_JDK = Path("/usr/lib/jvm/default-java/bin")
OPERATIONS = ("READ", "UPDATE", "INSERT", "SCAN", "DELETE", "READ-MODIFY-WRITE")
SUMMARY = re.compile(r"\[([\w-]+)\], ([^,]+), ([-\d.E]+)")


class BindingError(cluster.ClusterError):
    """Says what has failed, and what to do."""


class MavenError(BindingError):
    """There is no Maven, or it cannot fetch the packages."""


def default_cache():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cell-ycsb"


def jdk(program):
    """Returns the path of a program of the JDK: of Debian's default one, or that on PATH."""
    found = DEBIAN_JDK / program if (DEBIAN_JDK / program).exists() else shutil.which(program)
    if not found:
        raise BindingError(f"there is no {program}: apt-get install default-jdk-headless")
    return str(found)


def run(*command, error, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, **options)
    if done.returncode != 0:
        raise error(f"{Path(str(command[0])).name} failed with status {done.returncode}:\n{done.stdout.strip()}")


def once(place, make):
    """Calls make(DIR) for a directory that becomes `place`, unless that is there."""
    if place.is_dir():
        return place
    half = place.with_name(f"{place.name}.{os.getpid()}")
    half.mkdir(parents=True)
    try:
        make(half)
        try:
            half.rename(place)
        except OSError:
            if not place.is_dir():  # Otherwise another process was faster.
                raise
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return place


def digest(*paths):
    whole = hashlib.sha256()
    for path in paths:
        whole.update(Path(path).read_bytes())
    return whole.hexdigest()[:16]


def fetch(cache):
    """Returns a directory with the jars that pom.xml names and those that they need."""
    pom = cluster.binary("tools/ycsb/pom.xml")

    def make(directory):
        if not shutil.which("mvn"):
            raise MavenError("there is no mvn: apt-get install maven")
        print(f"fetching YCSB's client from Maven Central into {cache}", file=sys.stderr, flush=True)
        shutil.copyfile(pom, directory / "pom.xml")  # Maven wants to write beside it.
        run("mvn", "-q", "-B", f"-Dmaven.repo.local={cache}/m2", "-f", directory / "pom.xml", FETCH, "-DincludeScope=runtime",
            f"-DoutputDirectory={directory}/jars", error=MavenError)
        if not list((directory / "jars").glob("core-*.jar")):
            raise MavenError("mvn has fetched no core-*.jar")

    return once(cache / f"jars-{digest(pom)}", make) / "jars"


@dataclass
class Outcome:
    """What a run of YCSB's client has printed at its end."""
    text: str
    seconds: float
    throughput: float
    counts: dict = field(default_factory=dict)  # By operation, failed ones included.
    returns: dict = field(default_factory=dict)  # By operation and status: how often it was returned.
    average_us: dict = field(default_factory=dict)  # By operation.

    @property
    def operations(self):
        """Returns how many operations were done. YCSB counts READ-MODIFY-WRITE as a READ and an UPDATE, too."""
        return sum(self.counts.values()) - 2 * self.counts.get("READ-MODIFY-WRITE", 0)

    def wrong(self):
        """Returns the counts of what was returned that is not OK."""
        return {f"{operation} {status}": count for (operation, status), count in self.returns.items() if status != "OK" and count}


def parse(text):
    """Parses the summary of YCSB's client. Raises BindingError if there is none."""
    overall, counts, returns, average_us = {}, {}, {}, {}
    for operation, name, value in SUMMARY.findall(text):
        if operation == "OVERALL":
            overall[name] = float(value)
        elif name == "Operations" and operation.removesuffix("-FAILED") in OPERATIONS:
            name = operation.removesuffix("-FAILED")
            counts[name] = counts.get(name, 0) + int(float(value))
        elif name.startswith("Return="):
            returns[operation, name.removeprefix("Return=")] = int(float(value))
        elif name == "AverageLatency(us)" and not operation.endswith("-FAILED"):
            average_us[operation] = float(value)
    if "RunTime(ms)" not in overall:
        raise BindingError(f"YCSB's client printed no results:\n{text.strip()[-4000:]}")
    return Outcome(text, overall["RunTime(ms)"] / 1e3, overall["Throughput(ops/sec)"], counts, returns, average_us)


class Ycsb:
    """Is YCSB's client with the bindings, ready to run."""

    def __init__(self, cache=None):
        cache = (cache or default_cache()).absolute()
        cache.mkdir(parents=True, exist_ok=True)
        self.jars = fetch(cache)
        sources = sorted(Path(cluster.binary("tools/ycsb/java/cell/ycsb")).glob("*.java"))
        self.classes = self.compile(cache, sources)
        self.library = Path(cluster.binary("tools/ycsb/libcell_ycsb.so")).parent

    def compile(self, cache, sources, *classes):
        """Returns a directory with the classes of Java sources, which use YCSB's, and those in directories."""
        return once(cache / f"classes-{digest(*sources, *self.jars.glob('core-*.jar'))}", lambda directory: run(
            jdk("javac"), "-Xlint:all,-processing", "-Werror", "-d", directory, "-cp", self.class_path(*classes), *sources, error=BindingError))

    def class_path(self, *classes):
        return ":".join([*map(str, classes), f"{self.jars}/*"])

    def java(self, *arguments, classes=(), before=()):
        """Returns the command that runs Java with the bindings. `before`: what it begins with."""
        return [*before, jdk("java"), f"-Djava.library.path={self.library}", "-cp", self.class_path(self.classes, *classes), *map(str, arguments)]

    def command(self, database, workload, load, properties, threads=1, status=False, before=()):
        """Returns the command that runs YCSB's client. `workload`: a letter, or the path of a file of properties."""
        if database not in DATABASES:
            raise BindingError(f"there is no binding for {database}")
        arguments = ["-db", DATABASES[database], "-load" if load else "-t", "-P", workload_file(workload), "-threads", threads]
        if status:
            arguments.append("-s")
        for name, value in properties.items():
            arguments += ["-p", f"{name}={value}"]
        return self.java("site.ycsb.Client", *arguments, before=before)

    def run(self, *arguments, show=False, **options):
        """Runs YCSB's client, as `command` says. Returns its Outcome. `show`: its output goes to ours, too."""
        process = subprocess.Popen(self.command(*arguments, **options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=None if show else subprocess.STDOUT, text=True)
        lines = []
        try:
            for line in process.stdout:
                lines.append(line)
                if show:
                    print(line, end="", flush=True)
        finally:
            if process.poll() is None:
                process.terminate()
            process.stdout.close()
            process.wait()
        if process.returncode != 0:
            raise BindingError(f"YCSB's client ended with status {process.returncode}" + ("" if show else f":\n{''.join(lines)[-4000:]}"))
        return parse("".join(lines))


def workload_file(workload):
    """Returns the path of the workload with a letter, or of a file of properties."""
    if len(workload) == 1 and workload.lower() in WORKLOADS:
        return cluster.binary(f"tools/ycsb/workloads/workload{workload.lower()}")
    path = cluster.user_path(workload)
    if not path.is_file():
        raise BindingError(f"{workload} is no workload: use one of {', '.join(WORKLOADS)}, or the path of a file of properties")
    return str(path)


def check(outcome, expected):
    """Raises BindingError if operations have failed, or fewer were done than expected (None: any number)."""
    if outcome.wrong():
        raise BindingError("not all operations were OK: " + ", ".join(f"{what}: {count:,}" for what, count in outcome.wrong().items()))
    if expected is None and outcome.operations == 0:
        raise BindingError("no operation was done: see the errors above, or YCSB's output")
    if expected is not None and outcome.operations != expected:
        raise BindingError(f"{outcome.operations:,} operations were done, and not {expected:,}: see the errors above, or YCSB's output")

"""Keeps queues of jobs, each of which is done even if the worker that has taken it dies.

A worker takes a job for some time, its lease. If the worker has not finished the job by then, another one can take it. So
each job is done at least once. The effect of a job that is written in the transaction that finishes it happens exactly
once.

Keys:
  jobs/QUEUE/TIME/ID  has "ATTEMPTS TEXT". TIME is when the job may be taken, in microseconds since the Unix epoch, with
                      zeros in front so that keys are in the order of their times. ATTEMPTS is how often the job was taken.
  tally/QUEUE/TEXT    has how many jobs with this text (its first 100 bytes) were done. It stands for the effect of a job.

A job that is pushed has the time of now, or a later one. To take a job is to move it to the end of the lease: it is hidden
until then, and comes back by itself if nobody finishes it. To finish it is to delete it. There is no second list of the
jobs that are being done, and nothing that has to clean up after a crash.

The key of a taken job is also the proof of the lease ("TIME/ID", the lease's name). Each take and each extension gives the
job a later time, so a worker whose job was taken by another one does not find its own key any more.

Why transactions: a take deletes one key and puts another, and without a transaction a crash in between would lose the job.
Two workers could take the same job. And a worker that ends between the effect and the finish would leave a job that is
done a second time.

What to look at:
- `take_job` looks for jobs by a plain scan, and picks one of the first by chance. The transaction reads the key of that
  job alone. If it scanned, each push and each take of another worker would abort it.
- `finish_job` checks the lease and writes the effect in one transaction. A worker that was slow, and whose job was given
  to another one, changes nothing. The clocks of workers only decide when a job is tried again: that it is finished once
  does not depend on them.
- Effects outside of the store (a mail, say) can happen twice. `take` and `finish` are for workers that have such.

Jobs are taken about in the order of their times, not exactly.
"""

import random
import re
import secrets
import sys
import time
from typing import NamedTuple

from cell.examples import example
from cell.examples.example import DONE, WRONG, ExampleError, quoted, show

CANDIDATES = 16  # Workers pick one of the first jobs, so that few meet.
TAKES_MAX = 1000
TALLY_BYTES_MAX = 100
PAUSE = 0.02  # Seconds that a worker waits when it has found no job.


class Job(NamedTuple):
    lease: bytes  # TIME/ID: the key behind the prefix.
    attempts: int
    text: bytes


def prefix_of(flags):
    return b"jobs/" + flags.queue + b"/"


def tally_prefix_of(flags):
    return b"tally/" + flags.queue + b"/"


def job_in(flags, key, value):
    attempts, _, text = value.partition(b" ")
    return Job(key[len(prefix_of(flags)):], example.number_in(key, attempts), text)


def value_of(job):
    return b"%d %s" % (job.attempts, job.text)


def split_lease(name):
    """Returns the time and the id in the name of a lease."""
    parts = re.fullmatch(rb"([0-9]{1,16})/(.+)", name, re.DOTALL)
    if parts is None:
        raise ExampleError(f"{quoted(name)} is not the name of a lease: TIME/ID")
    return int(parts[1]), parts[2]


def lease_name(time_us, job_id):
    return example.time_digits(time_us) + b"/" + job_id


def end_of_lease(flags):
    return example.now_us() + int(flags.lease * 1e6)


def push(client, flags):
    time_us = example.now_us() + int(flags.delay * 1e6)
    jobs = [(prefix_of(flags) + lease_name(time_us + i, secrets.token_hex(8).encode()), text) for i, text in enumerate(flags.text)]

    def body(transaction):
        for key, text in jobs:
            transaction.put(key, b"0 " + text)

    # If the outcome was unknown, pushing them once more could add jobs that were done already.
    client.run(body, timeout=60)
    return DONE


def take_job(client, flags):
    """Takes a job that is due. Returns None if no job is due."""
    prefix = prefix_of(flags)
    for _ in range(TAKES_MAX):
        due = list(client.scan(prefix, prefix + example.time_digits(example.now_us() + 1), limit=CANDIDATES, keys_only=True))
        if not due:
            return None
        key = random.choice(due)
        lease = lease_name(end_of_lease(flags), split_lease(key[len(prefix):])[1])

        def body(transaction, key=key, lease=lease):
            value = transaction.get(key)
            if value is None:  # Another worker has it.
                return None
            job = job_in(flags, key, value)
            job = job._replace(lease=lease, attempts=job.attempts + 1)
            transaction.delete(key)
            transaction.put(prefix + lease, value_of(job))
            return job

        job = client.run(body, timeout=60)
        if job is not None:
            return job
    raise ExampleError("other workers have taken every job that was due: try again")


def finish_job(client, flags, lease, effect):
    """Finishes a job: deletes it, and has `effect(transaction, job)` write what the job has done, at the same moment.
    Returns False, and changes nothing, if the lease is over and the job was taken by another worker, or is finished."""
    key = prefix_of(flags) + lease

    def body(transaction):
        value = transaction.get(key)
        job = None if value is None else job_in(flags, key, value)
        if job is None or job.attempts == 0:  # Nobody has the lease of a job that was not taken.
            return False
        transaction.delete(key)
        effect(transaction, job)
        return True

    return client.run(body, timeout=60)


def report_lost(lease):
    show(f"the lease {quoted(lease)} is over: another worker has the job, or it is finished")
    return WRONG


def show_job(job, *before):
    show(*before, job.lease, job.attempts, job.text)


def take(client, flags):
    job = take_job(client, flags)
    if job is None:
        return WRONG
    show_job(job)
    return DONE


def finish(client, flags):
    split_lease(flags.name)
    return DONE if finish_job(client, flags, flags.name, lambda transaction, job: None) else report_lost(flags.name)


def extend(client, flags):
    """Makes a lease longer. The new one is later than the old one in any case, as each lease of a job has to be."""
    time_us, job_id = split_lease(flags.name)
    later = lease_name(max(end_of_lease(flags), time_us + 1), job_id)
    if not finish_job(client, flags, flags.name, lambda transaction, job: transaction.put(prefix_of(flags) + later, value_of(job))):
        return report_lost(flags.name)
    show(later)
    return DONE


def work(client, flags):
    """Does jobs until the queue has none, not even jobs that others have taken: those may come back."""

    def count(transaction, job):
        key = tally_prefix_of(flags) + job.text[:TALLY_BYTES_MAX]
        before = transaction.get(key)
        transaction.put(key, str((0 if before is None else example.number_in(key, before)) + 1))

    while True:
        job = take_job(client, flags)
        if job is None:
            if not any(True for _ in client.scan(prefix=prefix_of(flags), keys_only=True, limit=1)):
                return DONE
            time.sleep(PAUSE)
            continue
        show_job(job, "took")
        sys.stdout.flush()
        time.sleep(flags.work_ms / 1e3)
        show("finished" if finish_job(client, flags, job.lease, count) else "lost", job.lease)
        sys.stdout.flush()


def list_jobs(client, flags):
    for key, value in client.scan(prefix=prefix_of(flags)):
        show_job(job_in(flags, key, value))
    return DONE


def tally(client, flags):
    for key, number in client.scan(prefix=tally_prefix_of(flags)):
        show(key[len(tally_prefix_of(flags)):], number)
    return DONE


def main():
    parser = example.parser("job_queue", "Keep queues of jobs that are done even if a worker dies.", __doc__)
    parser.add_argument("--queue", type=example.part_of_key, default=b"default", help="name of the queue (default: default)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name, command, text):
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=command)
        return made

    pushing = add("push", push, "push each TEXT as a job, all of them or none")
    taking = add("take", take, "take a job: writes LEASE TAB ATTEMPT TAB TEXT. Exit status 1 if none is due")
    finishing = add("finish", finish, "finish a job that was taken. Exit status 1 if the lease is over and the job lost")
    extending = add("extend", extend, "extend a lease, and write its new name. Exit status 1 if the job is lost")
    working = add("work", work, "take and finish jobs until the queue has none. Each counts in the tally, in the transaction that finishes it")
    add("list", list_jobs, "list all jobs, also those that are taken, as `take` writes them")
    add("tally", tally, "list how often `work` has done a job of each text")
    pushing.add_argument("text", nargs="+", type=example.argument_bytes)
    pushing.add_argument("--delay", type=example.seconds(0, 1e9), default=0, help="seconds until the jobs may be taken (default: %(default)s)")
    for command in (finishing, extending):
        command.add_argument("name", metavar="lease", type=example.argument_bytes)
    for command in (taking, extending, working):
        command.add_argument("--for", dest="lease", type=example.seconds(0.001, 1e6), default=30, help="seconds that a lease lasts (default: %(default)s)")
    working.add_argument("--work-ms", type=example.whole_number(0, 1_000_000), default=0, help="how long each job takes, in milliseconds (default: %(default)s)")
    return example.run("job_queue", parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())

"""Programs that show what a sorted store with transactions is for. Each begins with how its keys are laid out.

    python -m cell.examples.time_series --help
    python -m cell.examples.secondary_index --help
    python -m cell.examples.inverted_file --help
    python -m cell.examples.job_queue --help

tools/examples of Cell's source has the same programs in C++. They use the same keys, so a program in one language can
write what a program in the other reads.
"""

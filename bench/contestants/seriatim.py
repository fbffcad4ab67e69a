"""Contestant: Seriatim, as a user runs it: RebuildTable, every setting at its default but the size of an epoch."""

from bench.contestants.seriatim_job import run
from bench.task import read_task

if __name__ == "__main__":
    run(read_task(), "s.RebuildTable(Level)")

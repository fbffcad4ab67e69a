"""Contestant: Seriatim with an operator that its user wrote: RebuildTable's changelog, as rows of his own."""

from bench.contestants.seriatim_job import KINDS, run
from bench.task import Task, read_task


def operator(task: Task) -> str:
    columns = "\n    ".join(f"{name}: {KINDS[kind]}" for name, kind in task.columns)
    values = ", ".join(f"row.{name}" for name in task.names)
    return f"""
class Entry(s.Output):
    op: str
    {columns}

class Changelog(s.Operator[s.Table[Level], Level, Entry]):
    def apply(self, state, message):
        for change in state.apply(message):
            row = change.row
            yield Entry(change.op, {values})
"""


if __name__ == "__main__":
    task = read_task()
    run(task, "Changelog()", operator(task))

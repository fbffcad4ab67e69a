"""Messages a second: Seriatim beside its peers, the same ordered work, the same records.

    python -m bench.compare                      2 million messages, every contestant three times, alternating
    python -m bench.compare --shape many         many sessions, larger rows; once
    python -m bench.compare --quick              400,000 messages, once: mostly start-up
    python -m bench.compare --only seriatim,noop measures these anew and keeps the others' results
    python -m bench.compare --resume             goes on with a run that was cut off

Each contestant is a process of its own: it reads all records of the topic, keeps each session's table, checks every
sequence number and row change, and writes every row change to zstd Parquet. Its output is counted. Steady speed leaves
out the first tenth of the messages; total is from process start to end. Every result is saved at once.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import processes, results
from bench.judge import Wrong, judged
from bench.load import PARTITIONS, SHAPES, TOPIC, publish
from bench.results import Results
from bench.roster import CONTESTANTS, Contestant, Missing
from bench.task import Task
from seriatim.source import broker
from seriatim.source.jars import connector_jars

SECONDS_MAX: Final = 600.0
QUICK: Final = 400_000
SLOW: Final = 20_000  # messages/s


def main() -> None:
    arguments = parse()
    shape = SHAPES[arguments.shape]
    messages = arguments.messages or (QUICK if arguments.quick else shape.messages)
    rounds = arguments.rounds or (1 if arguments.quick else shape.rounds)
    load = {"shape": arguments.shape, "messages": messages, "partitions": PARTITIONS}
    path = arguments.results / f"{arguments.shape}.json"
    conditions = {"load": load, "rounds": rounds, "machine": results.machine(), "at": results.now()}
    kept = Results.resumed(path, conditions) if arguments.only or arguments.resume else Results(path, conditions)
    names = arguments.only or list(CONTESTANTS)
    kept.missing = {name: why for name, why in kept.missing.items() if name not in names}  # tried again
    for name in () if arguments.resume else names:
        kept.forget(name)
    with broker.running() as info:
        rows = publish(info.bootstrap, shape, messages)
        print(f"{messages:,} messages in {PARTITIONS} partitions, {shape.title}, {rows:,} row changes", flush=True)
        jars = ",".join(str(jar) for jar in connector_jars())
        warmup = max(messages // 10, 1)
        for turn in range(rounds):
            for name in names:  # alternating, so that a busy moment of the machine meets all of them
                if len(kept.runs.get(name, ())) > turn or name in kept.missing or (turn and slow(name, kept)):
                    continue
                with tempfile.TemporaryDirectory(prefix="seriatim-bench-", ignore_cleanup_errors=True) as folder:
                    output = f"{name}-{turn}"
                    place = (info.bootstrap, TOPIC, folder)
                    task = Task(*place, messages, PARTITIONS, warmup, shape.columns, results.cores(), jars, output)
                    with output_topic(task):
                        measure(CONTESTANTS[name], task, rows, kept)


def slow(name: str, kept: Results) -> bool:
    """One round tells enough of it; the page says that it was one."""
    return any(run["steady"] < SLOW for run in kept.runs.get(name, ()))


@contextmanager
def output_topic(task: Task) -> Iterator[None]:
    """For this run only; what a contestant named after it (its changelogs) goes with it, or the disk would fill."""
    admin = AdminClient({"bootstrap.servers": task.bootstrap})
    for future in admin.create_topics([NewTopic(task.output_topic, task.partitions, 1)]).values():
        future.result(timeout=30)
    try:
        yield
    finally:
        made = [name for name in admin.list_topics(timeout=30).topics if name.startswith(task.output_topic)]
        for future in admin.delete_topics(made).values():
            future.result(timeout=30)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="wide")
    parser.add_argument("--only", type=_names, help="names, with commas: " + ", ".join(CONTESTANTS))
    parser.add_argument("--messages", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of the results, as JSON")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    if strangers := [name for name in names if name not in CONTESTANTS]:
        raise argparse.ArgumentTypeError(f"no such contestant: {', '.join(strangers)}")
    return names


def measure(contestant: Contestant, task: Task, rows: int, kept: Results) -> None:
    """One run, with its result saved: figures, or a word on why there are none."""
    try:
        command = contestant.command()
        outcome = processes.run(command, task.environment(), task.path, SECONDS_MAX)
        run = judged(contestant, task, rows, outcome)
    except Missing as error:
        kept.lacks(contestant.name, str(error))
        print(f"  {contestant.name:<20} not measured: {error}", flush=True)
    except (Wrong, processes.OutOfTime) as error:
        kept.lacks(contestant.name, f"failed: {str(error).splitlines()[0]}")
        print(f"  {contestant.name:<20} failed: {error}", flush=True)
    else:
        kept.add(contestant.name, run)
        print(
            f"  {contestant.name:<20} steady {run['steady']:>9,.0f}/s   total {run['total']:>9,.0f}/s   "
            f"{run['peak_bytes'] / 2**20:>6,.0f} MB   Parquet {run['parquet_bytes'] / 2**20:>6,.1f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()

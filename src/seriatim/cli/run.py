"""`seriatim run`."""

import click

EXIT_CODES = (
    "Exit codes: 0 done, 1 a bug of ours, 2 configuration, 3 environment, 4 data, 5 code, 6 another driver took over, "
    "130 or 143 ended at once."
)


@click.command(
    epilog=f"\b\nExamples:\n  seriatim run books.py\n  seriatim run books.py --until-caught-up\n\n{EXIT_CODES}"
)
@click.argument("job_file", metavar="JOB")
@click.option("--until-caught-up", is_flag=True, help="Stop at the end offsets of the start.")
@click.option(
    "--epoch-interval", metavar="TIME", help='Time between the starts of two epochs, such as "5s" or "500ms".'
)
@click.option("--max-records-per-epoch", type=click.IntRange(min=1), metavar="N", help="Bound on one epoch.")
@click.option("--max-records-per-partition", type=click.IntRange(min=1), metavar="N", help="Bound on each partition.")
def run(
    job_file: str,
    until_caught_up: bool,
    epoch_interval: str | None,
    max_records_per_epoch: int | None,
    max_records_per_partition: int | None,
) -> None:
    """Run the job in the Python file JOB (or JOB.py:NAME, where it is not called `job`).

    Ctrl-C or SIGTERM finishes the epoch at hand and stops; nothing is lost or doubled however it ends.
    """
    from seriatim.cli.progress import ConsoleListener
    from seriatim.durations import seconds
    from seriatim.engine.admission import Limits
    from seriatim.engine.stopping import StopFlag, stop_on_signals
    from seriatim.engine.supervisor import RunOptions, Supervisor
    from seriatim.loader import read_job_file

    ref = read_job_file(job_file)
    job = ref.load()
    options = RunOptions(
        until_caught_up=until_caught_up,
        epoch_seconds=job.epoch_seconds if epoch_interval is None else seconds(epoch_interval),
        limits=Limits(
            max_records_per_epoch or job.max_records_per_epoch,
            max_records_per_partition or job.max_records_per_partition,
        ),
    )
    stop = StopFlag()
    listener = ConsoleListener(job.name)
    with stop_on_signals(stop):
        Supervisor(job, ref, options, listener, stop).run()
    listener.finished(stop.reason)


COMMANDS = {"run": run}

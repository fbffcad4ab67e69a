"""`seriatim produce`."""

from pathlib import Path

import click

from seriatim.cli.broker import FOLDER


@click.command(
    epilog="\b\nExamples:\n  seriatim produce --messages 100000\n"
    "  seriatim produce --bootstrap kafka-1:9092 --messages 0 --rate 5000"
)
@click.option("--bootstrap", metavar="HOST:PORT", help="The broker; by default that of `seriatim broker start`.")
@click.option(
    "--messages",
    type=click.IntRange(min=0),
    default=100_000,
    show_default=True,
    help="How many; 0 goes on until Ctrl-C.",
)
@click.option(
    "--rate", type=click.FloatRange(min=0), default=0, help="Messages a second; 0, the default, is as fast as it goes."
)
@click.option("--prefix", default="capture-", show_default=True, help="What the topics' names begin with.")
@click.option("--topics", type=click.IntRange(min=1), default=2, show_default=True, help="How many topics.")
@click.option(
    "--topic", "names", multiple=True, help="Exact name of a topic, instead of prefix and number; may be repeated."
)
@click.option("--partitions", type=click.IntRange(min=1), default=2, show_default=True, help="Of each new topic.")
@click.option(
    "--sessions", type=click.IntRange(min=1), default=4, show_default=True, help="Capture sessions on each topic."
)
@click.option(
    "--rows", type=click.IntRange(min=1), default=200, show_default=True, help="Rows of each session's table."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed: other sessions, other messages.")
@click.option("--end", is_flag=True, help="End the sessions at the end.")
def produce(
    bootstrap: str | None, messages: int, rate: float, prefix: str, topics: int, names: tuple[str, ...],
    partitions: int, sessions: int, rows: int, seed: int, end: bool,
) -> None:  # fmt: skip
    """Publish simulated capture sessions: a snapshot each, then row updates, every message with a sequence number."""
    from seriatim.source import broker
    from seriatim.source.kafka import Kafka
    from seriatim.tools.produce import ProduceConfig
    from seriatim.tools.produce import produce as send

    if bootstrap is None:
        info = broker.status(Path(FOLDER))
        bootstrap = info.bootstrap if info is not None else "127.0.0.1:9092"
    config = ProduceConfig(
        topic_prefix=prefix,
        topic_count=topics,
        topics=names,
        partitions_per_topic=partitions,
        sessions_per_topic=sessions,
        rows_per_session=rows,
        messages_total=messages or None,
        messages_per_second=rate,
        end_sessions=end,
        seed=seed,
    )
    report = send(Kafka(bootstrap, topics=".+"), config)
    click.echo(
        f"sent {report.messages:,} messages of {report.sessions:,} sessions to {', '.join(report.topics)} "
        f"at {report.messages_per_second:,.0f} messages/s"
    )


COMMANDS = {"produce": produce}

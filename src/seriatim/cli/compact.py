"""`seriatim compact`."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from seriatim.engine.compaction import TablePlan, TableReport


@click.command(
    epilog="\b\nExamples:\n  seriatim compact books.py\n  seriatim compact ./data/books --apply\n"
    "  seriatim compact s3://bucket/books --file-size 256MB --apply --json"
)
@click.argument("target")
@click.option("--file-size", metavar="SIZE", help='How large files become, such as "128MB"; else as the job says.')
@click.option("--apply", "do_it", is_flag=True, help="Do it. Without this nothing is changed.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def compact(target: str, file_size: str | None, do_it: bool, as_json: bool) -> None:
    """Merge the small files of a job's tables into few, large ones, sorted by session: shows what would be done, and
    with --apply does it, on Spark. TARGET is a job file, or the storage of a job.

    A driver that runs meanwhile is not held up. No row changes; the files that were merged stay until `seriatim gc`.
    """
    from seriatim.cli import render
    from seriatim.observe.target import find_target
    from seriatim.output.layout import Layout
    from seriatim.tools import compact as tool

    found = find_target(target)
    layout = Layout() if found.job is None else found.job.layout
    if file_size is not None:
        layout = layout.with_file_size(file_size)
    if do_it:
        reports = tool.apply(found, layout)
        if as_json:
            render.as_json(reports)
        elif not reports:
            click.echo("There is nothing to merge.")
        else:
            _show_reports(reports)
        return
    plans = tool.show(found, layout)
    if as_json:
        render.as_json(plans)
        return
    _show_plans(plans)


def _show_plans(plans: "tuple[TablePlan, ...]") -> None:
    from seriatim.cli import render

    headers = ["table", "files", "bytes", "median", "to merge", "bytes", "tasks", "files after"]
    render.table(
        headers,
        [
            [
                plan.output,
                *(f"{number:,}" for number in (plan.files, plan.bytes, plan.median_bytes, plan.merged_files)),
                *(f"{number:,}" for number in (plan.merged_bytes, plan.merges, plan.files_after)),
            ]
            for plan in plans
        ],
    )
    merges = any(plan.merges for plan in plans)
    click.echo("Nothing was changed. Add --apply to do it." if merges else "There is nothing to merge.")


def _show_reports(reports: "tuple[TableReport, ...]") -> None:
    from seriatim.cli import render

    headers = ["table", "files before", "after", "bytes before", "after", "median before", "after", "rewritten"]
    render.table(
        headers,
        [
            [
                one.output,
                *(f"{number:,}" for number in (one.files_before, one.files_after, one.bytes_before, one.bytes_after)),
                *(f"{number:,}" for number in (one.median_bytes_before, one.median_bytes_after)),
                f"{render.count(one.rewritten_rows, 'row')} in {render.count(one.rewritten_files, 'file')}",
            ]
            for one in reports
        ],
    )


COMMANDS = {"compact": compact}

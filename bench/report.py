"""The tables and the plots of docs/performance.md, from the results on disk.

python -m bench.report                              rewrites the measured part of docs/performance.md, and the plots
python -m bench.report --results FOLDER --print     prints the tables of other results, and writes nothing
"""

import argparse
from pathlib import Path
from typing import Any, Final

from bench import plot, results
from bench.goals import GOALS, Found, median, share
from bench.load import SHAPES
from bench.results import Results
from bench.roster import CONTESTANTS, OURS

DOCS: Final = Path(__file__).parent.parent / "docs"
BEGIN: Final = "<!-- made by `python -m bench.report` from bench/results: change nothing here by hand -->"
TRIALS: Final = {
    "start": "Start",
    "overhead": "An epoch with nothing to do but commit",
    "latency": "Latency, from produced to visible",
    "idle": "Idle sessions",
    "partitions": "Quiet partitions",
    "history": "History",
    "as_of": "A table as of a moment",
    "memory": "Memory",
    "files": "Files of an hour",
}
END: Final = "<!-- end of what is made -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=results.FOLDER)
    parser.add_argument("--print", action="store_true", dest="only_print")
    arguments = parser.parse_args()
    found = {path.stem: Results.load(path) for path in sorted(arguments.results.glob("*.json"))}
    if arguments.only_print:
        print(measured(found))
        return
    page = DOCS / "performance.md"
    page.write_text(with_measured(page.read_text(encoding="utf-8"), measured(found)), encoding="utf-8")
    for shape in SHAPES:
        if shape in found:
            (DOCS / plot_name(shape)).write_text(plot.speeds(found[shape], SHAPES[shape].title), encoding="utf-8")


def with_measured(page: str, text: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def plot_name(shape: str) -> str:
    return f"performance-{shape}.svg"


def measured(found: Found) -> str:
    parts = [goals(found)]
    parts += [speeds(shape, found[shape]) for shape in SHAPES if shape in found]
    parts += [figures(name, found[name]) for name in TRIALS if name in found]
    return "\n".join(parts)


def goals(found: Found) -> str:
    lines = ["### Goals", "", "| | goal | measured | |", "|---|---|---|---|"]
    for goal in GOALS:
        figure = goal.figure(found)
        if figure is None:
            lines.append(f"| {goal.what} | {goal.wanted} | not measured | |")
        else:
            verdict = "met" if goal.met(figure) else "**missed**"
            lines.append(f"| {goal.what} | {goal.wanted} | {share(figure, goal.unit)} | {verdict} |")
    return "\n".join([*lines, ""])


def speeds(shape: str, kept: Results) -> str:
    title = SHAPES[shape].title
    lines = [
        f"### {title[0].upper()}{title[1:]}",
        "",
        f"![messages a second, {title}]({plot_name(shape)})",
        "",
        conditions(kept),
        "",
        "| | steady messages/s | Seriatim is | total messages/s | Seriatim is | peak memory, MB | Parquet, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [line(name, kept) for name in ranked(kept)]
    lines += [
        f"| {CONTESTANTS[name].title} | not measured: {why} | | | | | |"
        for name, why in kept.missing.items()
        if name in CONTESTANTS
    ]
    return "\n".join([*lines, "", faster(kept), ""])


def figures(name: str, kept: Results) -> str:
    """Of a small benchmark."""
    load = ", ".join(
        f"{what}: {many:,}" if isinstance(many, int) else f"{what}: {many}"
        for what, many in kept.conditions["load"].items()
    )
    lines = [f"### {TRIALS[name]}", "", f"`python -m bench.{name}`; {load}; {machine(kept)}", "", "| | |", "|---|---|"]
    lines += [
        f"| {what} | {figure:,.4g} |"
        for run in kept.runs.get(name, ())
        for what, figure in run.items()
        if isinstance(figure, int | float) and what != results.BUSY
    ]
    return "\n".join([*lines, ""])


def ranked(kept: Results) -> list[str]:
    """The fastest first."""
    return sorted(
        (name for name in kept.runs if name in CONTESTANTS), key=lambda name: median(kept, name, "steady") or 0.0
    )[::-1]


def line(name: str, kept: Results) -> str:
    rounds = len(kept.runs[name])
    fewer = f" ({rounds} round{'s' * (rounds > 1)})" if rounds < kept.conditions["rounds"] else ""
    cells = [CONTESTANTS[name].title + ("" if CONTESTANTS[name].ordered else " ¹") + fewer]
    for kind in ("steady", "total"):
        figure, ours = median(kept, name, kind), median(kept, OURS, kind)
        cells.append(f"{figure:,.0f}" if figure else "")
        cells.append(f"{ours / figure:.2f}x" if figure and ours and name != OURS else "")
    for kind, digits in (("peak_bytes", 0), ("parquet_bytes", 1)):
        figure = median(kept, name, kind)
        cells.append(f"{figure / 2**20:,.{digits}f}" if figure else "")
    return f"| {' | '.join(cells)} |"


def faster(kept: Results) -> str:
    """Who beats us, said in words."""
    told = {
        kind: [CONTESTANTS[name].title for name in ranked(kept) if beats(name, kept, kind)]
        for kind in ("steady", "total")
    }
    ahead = f"Faster than Seriatim, steady: {', '.join(told['steady']) or 'nobody'}; in total: "
    notes = "¹ does not do the ordered work. ² writes to a topic of Kafka, not to Parquet: it has no file sink."
    return f"{ahead}{', '.join(told['total']) or 'nobody'}. {notes}"


def beats(name: str, kept: Results, kind: str) -> bool:
    theirs, ours = median(kept, name, kind), median(kept, OURS, kind)
    return bool(theirs and ours and theirs > ours)


def conditions(kept: Results) -> str:
    told: dict[str, Any] = kept.conditions
    load = told["load"]
    return (
        f"{load['messages']:,} messages in {load['partitions']} partitions, median of {told['rounds']} unless another "
        f"number of rounds is told; {machine(kept)}"
    )


def machine(kept: Results) -> str:
    told: dict[str, Any] = kept.conditions
    its = told["machine"]
    commits = sorted({run["commit"] for runs in kept.runs.values() for run in runs if run.get("commit")})
    busy = (
        f" **Provisional: other work was running (load {its['busy']} on {its['cores']} cores).**"
        if its["busy"] > its["cores"] / 2
        else ""
    )
    return (
        f"{told['at'][:10]}, commit {', '.join(commits)}, {its['cores']} cores, {its['memory_gb']} GB, "
        f"{its['system']}, Python {its['python']}, PySpark {its['pyspark']}, load before {its['busy']}.{busy}"
    )


if __name__ == "__main__":
    main()

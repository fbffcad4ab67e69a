"""A bar chart as SVG, drawn by hand: a plotting library would be a dependency for twenty rectangles."""

import statistics
from html import escape
from typing import Final

from bench.results import Results
from bench.roster import CONTESTANTS, OURS

WIDTH: Final = 860
NAMES: Final = 290  # pixels kept for the names
BAR: Final = 20
GAP: Final = 8
TOP: Final = 44


def speeds(kept: Results, title: str) -> str:
    medians = {
        name: statistics.median(run["steady"] for run in runs)
        for name, runs in kept.runs.items()
        if name in CONTESTANTS and runs
    }
    ranking = sorted(medians.items(), key=lambda pair: -pair[1])
    height = TOP + len(ranking) * (BAR + GAP) + GAP
    scale = (WIDTH - NAMES - 90) / max(medians.values(), default=1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="24" font-size="15">messages/s, steady: {escape(title)}</text>',
    ]
    for place, (name, figure) in enumerate(ranking):
        parts += _bar(name, figure, scale, TOP + place * (BAR + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _bar(name: str, figure: float, scale: float, top: int) -> list[str]:
    colour = "#1b6ca8" if name == OURS else "#8fb4d0" if CONTESTANTS[name].ordered else "#d0d0d0"
    length, line = max(1, round(figure * scale)), top + 15
    title = escape(CONTESTANTS[name].title.replace("`", ""))
    return [
        f'<text x="{NAMES - 8}" y="{line}" text-anchor="end">{title}</text>',
        f'<rect x="{NAMES}" y="{top}" width="{length}" height="{BAR}" fill="{colour}"/>',
        f'<text x="{NAMES + length + 6}" y="{line}">{figure:,.0f}</text>',
    ]

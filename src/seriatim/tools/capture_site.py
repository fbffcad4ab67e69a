"""Simulated capture sites: each an order book, told as snapshot, then updates. Pure, and all follows from the seed.

Every session's table is kept here, so no message ever breaks a row rule. Nothing here knows Kafka.
"""

from bisect import bisect
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import msgspec

from seriatim.errors import ConfigurationError

SNAPSHOT_BYTES_MAX: Final = 500_000  # Kafka refuses a message of more than about 1 MB
GONE_IDS_MAX: Final = 1_000

# What a row change is, and what a message is, by share. Deleted rows come back: that is where wrong order shows.
_KINDS: Final = ("update", "insert", "delete", "upsert")
_KIND_BOUNDS: Final = (0.84, 0.90, 0.96)
_FORMS: Final = ("row", "rows", "changes", "snapshot")
_FORM_BOUNDS: Final = (0.970, 0.990, 0.9998)


class ProduceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulated sites are and how much they send.

    `topics` are explicit names; without them they are `topic_prefix` and a number from 1 to `topic_count`. A topic that
    exists keeps its partitions. `messages_total=None` goes on until stopped; the chunks still due at the end, and the
    `end` messages, come on top. `messages_per_second=0` is as fast as possible.
    """

    topic_prefix: str = "capture-"
    topic_count: int = 2
    topics: tuple[str, ...] = ()
    partitions_per_topic: int = 2
    sessions_per_topic: int = 4
    rows_per_session: int = 200
    chunk_rows: int | None = None
    messages_total: int | None = 100_000
    messages_per_second: float = 0.0
    end_sessions: bool = False
    seed: int = 1
    run: str = ""

    def __post_init__(self) -> None:
        for name in ("topic_count", "partitions_per_topic", "sessions_per_topic", "rows_per_session", "chunk_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} is {value}.", hint="Give a whole number from 1 up.")
        for name in ("messages_total", "messages_per_second"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigurationError(f"{name} is {value}.", hint="Give a number from 0 up.")

    def topic_names(self) -> tuple[str, ...]:
        return self.topics or tuple(f"{self.topic_prefix}{number}" for number in range(1, self.topic_count + 1))

    def run_label(self) -> str:
        return self.run or f"run{self.seed}"


@dataclass(slots=True)
class Level:
    """A row of the simulated table. Whole ticks and lots, so that every price and size is a short decimal."""

    id: str
    side: str
    price_ticks: int
    size_lots: int

    def text(self) -> str:
        price, size = self.price_ticks / 100, self.size_lots / 10
        return f'{{"id":"{self.id}","side":"{self.side}","price":{price},"size":{size}}}'


class SessionScript:
    """The messages of one capture session, one after another, for ever. Keeps the table, so every one is valid."""

    def __init__(self, config: ProduceConfig, seed: str) -> None:
        self._random = Random(seed).random
        self._rows_wanted = config.rows_per_session
        self._chunk_rows = config.chunk_rows
        self._one_number_for_all_chunks = self._random() < 0.5  # producers do both
        self._sequence = 0
        self._ids_made = 0
        self._gone: list[str] = []
        self._levels = [self._new_level() for _ in range(config.rows_per_session)]
        self._due: deque[bytes] = deque()

    @property
    def started(self) -> bool:
        return self._sequence > 0

    def next_message(self) -> bytes:
        """Measured: 2.5 us."""
        if not self._due:
            if self._sequence == 0:
                self._due.extend(self._snapshot())
            else:
                form = _FORMS[bisect(_FORM_BOUNDS, self._random())]
                if form == "row":
                    kind = self._kind()
                    return self._message(kind, f'"row":{self._change(kind)}')
                self._due.extend(self._rare(form))
        return self._due.popleft()

    def closing_messages(self, *, end: bool) -> list[bytes]:
        """What is left to send so that no snapshot stays half sent, and the session's end if wanted."""
        if not self.started:
            return []
        closing = list(self._due)
        self._due.clear()
        if end:
            self._sequence += 1
            closing.append(f'{{"type":"end","seq":{self._sequence}}}'.encode())
        return closing

    def _message(self, kind: str, body: str) -> bytes:
        self._sequence += 1
        return f'{{"type":"{kind}","seq":{self._sequence},{body}}}'.encode()

    def _rare(self, form: str) -> list[bytes]:
        if form == "snapshot":
            if self._random() < 0.5 and self._sequence > 1:
                # The site was away for a moment: its table has moved on, unseen, and it counts from the beginning.
                for _ in range(1 + self._below(5)):
                    self._change(self._kind())
                self._sequence = 0
            return self._snapshot()
        count = 2 + self._below(4)
        if form == "changes":
            kinds = (self._kind() for _ in range(count))
            changes = ",".join(f'{{"type":"{kind}","row":{self._change(kind)}}}' for kind in kinds)
            return [self._message("changes", f'"changes":[{changes}]')]
        kind = self._kind()
        if kind == "delete":
            count = min(count, len(self._levels))
        rows = ",".join(self._change(kind) for _ in range(count))
        return [self._message(kind, f'"rows":[{rows}]')]

    def _snapshot(self) -> list[bytes]:
        chunks = chunked([level.text() for level in self._levels], self._chunk_rows)
        if len(chunks) == 1:
            return [self._message("snapshot", f'"rows":[{",".join(chunks[0])}]')]
        messages = []
        for index, rows in enumerate(chunks):
            if index and self._one_number_for_all_chunks:
                self._sequence -= 1
            body = f'"chunk":{index},"chunks":{len(chunks)},"rows":[{",".join(rows)}]'
            messages.append(self._message("snapshot", body))
        return messages

    def _kind(self) -> str:
        """Which kind of change comes next: one that is possible, and that keeps the table near its wanted size."""
        kind = _KINDS[bisect(_KIND_BOUNDS, self._random())]
        rows = len(self._levels)
        if rows == 0:
            return "insert"
        if kind == "insert" and rows * 4 > self._rows_wanted * 5:
            return "delete"
        return kind

    def _change(self, kind: str) -> str:
        """Change the table; the row as the message carries it."""
        if kind == "insert" or (kind == "upsert" and self._random() < 0.3):
            level = self._new_level()
            self._levels.append(level)
            return level.text()
        place = self._below(len(self._levels))
        level = self._levels[place]
        if kind == "delete":
            self._levels[place] = self._levels[-1]
            self._levels.pop()
            self._gone.append(level.id)
            del self._gone[:-GONE_IDS_MAX]
            return f'{{"id":"{level.id}"}}'
        roll = self._random()
        resized, repriced = roll < 0.80 or kind == "upsert", roll > 0.75
        patch = f'{{"id":"{level.id}"'
        if resized:
            level.size_lots = 1 + self._below(10_000)
            patch += f',"size":{level.size_lots / 10}'
        if repriced:
            level.price_ticks = max(1, level.price_ticks + self._below(21) - 10)
            patch += f',"price":{level.price_ticks / 100}'
        return level.text() if kind == "upsert" else patch + "}"

    def _new_level(self) -> Level:
        bid = self._random() < 0.5
        ticks = 10_000 + (-1 if bid else 1) * (1 + self._below(2_000))
        return Level(self._new_id(), "bid" if bid else "ask", ticks, 1 + self._below(10_000))

    def _new_id(self) -> str:
        if self._gone and self._random() < 0.5:
            return self._gone.pop(self._below(len(self._gone)))
        self._ids_made += 1
        return f"L{self._ids_made}"

    def _below(self, bound: int) -> int:
        # Measured: half the time of Random.randrange; the tiny unevenness does not matter here.
        return int(self._random() * bound)


def chunked(rows: list[str], chunk_rows: int | None) -> list[list[str]]:
    """The rows' texts in chunks of `chunk_rows`, or less where they would not fit into a message. Always one chunk."""
    chunks: list[list[str]] = [[]]
    chunk_bytes = 0
    for row in rows:
        row_bytes = len(row) + 1
        if chunks[-1] and (len(chunks[-1]) == chunk_rows or chunk_bytes + row_bytes > SNAPSHOT_BYTES_MAX):
            chunks.append([])
            chunk_bytes = 0
        chunks[-1].append(row)
        chunk_bytes += row_bytes
    return chunks


class Site:
    """One capture site: where its session goes, and its script. `lane` spreads sessions evenly over partitions."""

    def __init__(self, config: ProduceConfig, topic: str, number: int) -> None:
        self.topic = topic
        self.session = f"site-{number + 1:03d}-{config.run_label()}"
        self.key = self.session.encode()
        self.lane = number
        self.script = SessionScript(config, f"{config.seed}/{topic}/{self.session}")


def sites_of(config: ProduceConfig) -> list[Site]:
    numbers = range(config.sessions_per_topic)
    return [Site(config, topic, number) for topic in config.topic_names() for number in numbers]


def messages(config: ProduceConfig, sites: Sequence[Site]) -> Iterator[tuple[Site, bytes]]:
    """`messages_total` messages of all sites, mixed at random, by the seed."""
    random = Random(f"{config.seed}/mix").random
    count = len(sites)
    numbers = iter(int, 1) if config.messages_total is None else range(config.messages_total)
    for _ in numbers:
        site = sites[int(random() * count)]
        yield site, site.script.next_message()


def closing_messages(config: ProduceConfig, sites: Sequence[Site]) -> Iterator[tuple[Site, bytes]]:
    for site in sites:
        for value in site.script.closing_messages(end=config.end_sessions):
            yield site, value

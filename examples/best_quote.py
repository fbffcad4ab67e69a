"""An operator of your own: the best bid and ask after each message."""

import os
from collections.abc import Iterator

import seriatim as s


class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float
    size: float


class Quote(s.Output):
    bid: float | None
    ask: float | None


class BestQuote(s.Operator[s.Table[Level], Level, Quote]):
    """State: the session's table. Output: one quote a message."""

    def apply(self, state: s.Table[Level], message: s.Message[Level]) -> Iterator[Quote]:
        state.apply(message)
        bids = [level.price for level in state if level.side == "bid"]
        asks = [level.price for level in state if level.side == "ask"]
        yield Quote(bid=max(bids, default=None), ask=min(asks, default=None))


job = s.Job(
    name="quotes",
    source=s.Kafka(os.environ.get("SERIATIM_BROKER", "127.0.0.1:9092"), topics="capture-.+"),
    codec=s.JsonEnvelope(Level),
    operator=BestQuote(),
    storage=os.environ.get("SERIATIM_STORAGE", "./data/quotes"),
)

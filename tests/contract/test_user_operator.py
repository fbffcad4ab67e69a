"""An operator as a user writes it, tested as a user tests it: no Spark, no Kafka, a crash is a value in the script."""

from collections.abc import Iterator

import pytest

import seriatim as s
from seriatim.errors import CodeError, RecordRefused
from seriatim.testing import CRASH, EPOCH, Outcome, Step, delete, end, insert, run, snapshot, update


class Level(s.Row):
    id: s.Key[str]
    side: str
    price: float


class Quote(s.Output):
    bid: float | None
    ask: float | None


class BestQuote(s.Operator[s.Table[Level], Level, Quote]):
    """The best bid and ask of a session after every message."""

    def apply(self, state: s.Table[Level], message: s.Message[Level]) -> Iterator[Quote]:
        state.apply(message)
        bids = [row.price for row in state if row.side == "bid"]
        asks = [row.price for row in state if row.side == "ask"]
        if bids and asks and max(bids) >= min(asks):
            raise s.Violation(f"the book is crossed: bid {max(bids)}, ask {min(asks)}")
        yield Quote(max(bids, default=None), min(asks, default=None))


def play(*script: Step) -> Outcome:
    return run(script, codec=s.JsonEnvelope(Level), operator=BestQuote())


def quotes(outcome: Outcome) -> list[tuple[float | None, float | None]]:
    return [(row["bid"], row["ask"]) for row in outcome.rows]


OPEN = snapshot("site-1", [{"id": "a", "side": "bid", "price": 10.0}, {"id": "b", "side": "ask", "price": 11.0}])
SCRIPT: list[Step] = [
    OPEN,
    insert("site-1", {"id": "c", "side": "bid", "price": 10.5}),
    update("site-1", {"id": "b", "price": 10.75}),
    delete("site-1", {"id": "c"}),
    end("site-1"),
]
EXPECTED = [(10.0, 11.0), (10.5, 11.0), (10.5, 10.75), (10.0, 10.75), (None, None)]


def test_a_quote_comes_after_every_message() -> None:
    assert quotes(play(*SCRIPT)) == EXPECTED


@pytest.mark.parametrize("step", [EPOCH, CRASH])
@pytest.mark.parametrize("place", range(1, len(SCRIPT) + 1))
def test_epochs_and_crashes_make_no_difference_wherever_they_come(step: Step, place: int) -> None:
    assert quotes(play(*SCRIPT[:place], step, *SCRIPT[place:])) == EXPECTED


def test_a_crash_after_every_message_makes_no_difference() -> None:
    assert quotes(play(*[step for sent in SCRIPT for step in (sent, CRASH, EPOCH, CRASH)])) == EXPECTED


def test_a_row_says_where_it_came_from() -> None:
    row = play(OPEN).rows[0]
    assert [row[name] for name in ("_session", "_topic", "_partition", "_offset", "_position")] == [
        "site-1",
        "capture-test",
        0,
        0,
        0,
    ]


def test_sessions_do_not_see_each_other() -> None:
    other = snapshot("site-2", [{"id": "a", "side": "ask", "price": 1.0}])
    assert quotes(play(OPEN, other, update("site-1", {"id": "a", "price": 10.25}))) == [
        (10.0, 11.0),
        (None, 1.0),
        (10.25, 11.0),
    ]


def test_the_state_of_live_sessions_can_be_looked_at() -> None:
    assert {row.id for row in play(*SCRIPT[:2]).states["site-1"]} == {"a", "b", "c"}
    assert play(*SCRIPT).states == {}


def test_a_message_that_the_operator_refuses_stops_the_job_there() -> None:
    with pytest.raises(RecordRefused, match=r"the book is crossed: bid 12\.0, ask 11\.0") as caught:
        play(OPEN, insert("site-1", {"id": "x", "side": "bid", "price": 12.0}))
    assert caught.value.fields["offset"] == 1


def test_an_exception_in_the_operator_is_told_with_its_record() -> None:
    class Broken(BestQuote):
        def apply(self, state: s.Table[Level], message: s.Message[Level]) -> Iterator[Quote]:
            raise ZeroDivisionError("oops")

    with pytest.raises(CodeError, match=r"capture-test/0 offset 0, session 'site-1': .*ZeroDivisionError: oops"):
        run([OPEN], codec=s.JsonEnvelope(Level), operator=Broken())

"""A job is checked when it is built: each wrong part gives one sentence and something to do."""

from collections.abc import Iterator
from typing import Any

import pytest

import seriatim as s
from seriatim.durations import seconds
from seriatim.errors import ConfigurationError


class Level(s.Row):
    id: s.Key[str]
    price: float


class Other(s.Row):
    id: s.Key[str]


PARTS: dict[str, Any] = {
    "name": "books",
    "source": s.Kafka("localhost:9092", topics="capture-.+"),
    "codec": s.JsonEnvelope(Level),
    "operator": s.RebuildTable(Level),
    "storage": "./data/books",
}


def job(**parts: Any) -> s.Job:
    return s.Job(**(PARTS | parts))


def test_a_job_of_good_parts_is_built_with_its_defaults() -> None:
    built = job()
    assert (built.epoch_seconds, built.max_records_per_epoch, built.tasks_max) == (5.0, 500_000, 64)
    assert built.integrity == s.Strict()
    assert [field.name for field in built.program.schema][-4:] == ["_op", "_cause", "id", "price"]


@pytest.mark.parametrize(
    ("part", "wrong", "says"),
    [
        ("name", "", "job's name"),
        ("name", "a/b", "job's name"),
        ("name", "-books", "job's name"),
        ("name", "b" * 101, "job's name"),
        ("name", None, "job's name"),
        ("source", "localhost:9092", "source"),
        ("codec", Level, "codec"),
        ("operator", s.RebuildTable, "operator"),
        ("integrity", "strict", "integrity"),
        ("storage", "  ", "storage"),
        ("storage", None, "storage"),
        ("epoch_interval", "5", "not a duration"),
        ("epoch_interval", "-5s", "not a duration"),
        ("epoch_interval", 5, "not a duration"),
        ("epoch_timeout", "0s", "in no time"),
        ("epoch_timeout", 600, "not a duration"),
        ("max_records_per_epoch", 0, "max_records_per_epoch"),
        ("max_records_per_epoch", 1.5, "max_records_per_epoch"),
        ("tasks_max", True, "tasks_max"),
        ("tasks_max", "4", "tasks_max"),
        ("codec", s.JsonEnvelope(Other), "rows of Other, the operator takes rows of Level"),
    ],
)
def test_a_wrong_part_is_refused_with_a_hint(part: str, wrong: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        job(**{part: wrong})
    assert caught.value.hint


def test_an_operator_whose_state_can_not_start_is_refused() -> None:
    class Count(s.State):
        seen: int

    class Seen(s.Output):
        seen: int

    class Counter(s.Operator[Count, Level, Seen]):
        def apply(self, state: Count, message: s.Message[Level]) -> Iterator[Seen]:
            yield Seen(state.seen)

    with pytest.raises(ConfigurationError, match="without arguments"):
        job(operator=Counter())


def test_an_operator_whose_output_can_not_be_stored_is_refused() -> None:
    class Prices(s.Output):
        by_id: dict[str, float]

    class Pricer(s.Operator[dict[str, float], Level, Prices]):
        def apply(self, state: dict[str, float], message: s.Message[Level]) -> Iterator[Prices]:
            yield Prices(state)

    with pytest.raises(ConfigurationError, match=r"Prices\.by_id has the type dict"):
        job(operator=Pricer())


def test_a_job_never_shows_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_KEY", "hush-hush")
    built = job(storage_options={"aws_secret_access_key": s.secret("STORAGE_KEY"), "region": "eu"})
    assert "hush-hush" not in repr(built) + repr(vars(built))
    assert built.revealed_storage_options() == {"aws_secret_access_key": "hush-hush", "region": "eu"}


@pytest.mark.parametrize(
    ("text", "expected"), [("500ms", 0.5), ("5s", 5.0), ("1.5m", 90.0), ("2 h", 7200.0), ("0s", 0.0), (" 5s ", 5.0)]
)
def test_durations_are_a_number_and_a_unit(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)

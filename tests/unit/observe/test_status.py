"""`seriatim status` of a job that is in trouble: what was tried again, and why."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from seriatim.errors import EngineFailure
from seriatim.ledger.ledger import JobFacts, Ledger
from seriatim.ledger.manifest import SourceFacts
from seriatim.testing import EPOCH, snapshot
from tests.unit.observe.played import player, shower


def test_what_was_tried_again_and_why_is_in_the_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show = shower(capsys)
    job = player(tmp_path)
    for step in (snapshot("s", []), EPOCH):
        job.play(step)
    calm = show("status", str(tmp_path))
    assert calm.exit_code == 0 and "restarted:" not in calm.text and "starts:" not in calm.text
    because = "after EngineFailure: Spark could not run.\n\x1b[31mMemoryError"
    for _ in range(3):
        facts = JobFacts("scripted", SourceFacts("", "", ()), "", "", because=because, key=job.program.key_columns)
        ledger = Ledger.open(job.store, facts, job.program.schemas)
        with suppress(EngineFailure), ledger.at_work():
            raise EngineFailure("Spark could not run.")
    shown = show("status", str(tmp_path))
    assert "restarted: after EngineFailure: Spark could not run. " in shown.text and "MemoryError\n" in shown.text
    assert "\x1b" not in shown.text
    assert "starts:    2 starts in a row died in an epoch: the next one is smaller\n" in shown.text
    told = json.loads(show("status", str(tmp_path), "--json").text)
    assert (told["fruitless"], told["writer"]["because"]) == (3, because)

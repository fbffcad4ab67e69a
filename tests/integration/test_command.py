"""The command as a person meets it: every mistake gets one clear message, the right exit code, and no traceback."""

import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from seriatim.testing import snapshot, update
from tests.integration.harness import Command, Site, run_here

Start = Callable[..., Command]


def refused(running: Command, exit_code: int, *words: str) -> None:
    assert running.ends() == exit_code, running.text
    for word in words:
        assert word in running.text, running.text
    assert "Traceback" not in running.text
    assert "error: " in running.text and "hint: " in running.text


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_job_file_that_is_not_there(command: Start) -> None:
    refused(command("run", "nowhere.py"), 2, "There is no job file nowhere.py", "seriatim init")


def test_a_job_file_that_does_not_compile(command: Start, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import seriatim as s\njob = s.Job(\n")
    refused(command("run", "job.py"), 2, "SyntaxError", "line 2")


def test_a_job_file_without_a_job(command: Start, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import seriatim as s\n")
    refused(command("run", "job.py"), 2, "has no job named job")


def test_no_broker(command: Start, tmp_path: Path) -> None:
    site = Site(f"127.0.0.1:{closed_port()}", "none-", tmp_path)
    refused(command("run", str(site.job_file())), 3, "No answer from Kafka", "seriatim broker start")


@pytest.mark.broker
def test_no_java(site: Site, command: Start) -> None:
    site.create_topic("a", 1)
    refused(command("run", str(site.job_file()), JAVA_HOME=str(site.folder)), 2, "JAVA_HOME")


@pytest.mark.broker
def test_a_spark_that_does_not_start_is_retried_and_its_log_is_named(site: Site, command: Start) -> None:
    site.create_topic("a", 1)
    running = command("run", str(site.job_file(extra='spark={"spark.driver.memory": "no such size"}')))
    running.says("trying again")
    assert "spark.log" in running.text
    assert "Traceback" not in running.text


@pytest.mark.broker
def test_a_row_type_that_can_not_be_stored(site: Site, command: Start) -> None:
    row = """
        class Level(s.Row):
            id: s.Key[str]
            anything: dict[str, object]
        """
    refused(command("run", str(site.job_file(row=row))), 2, "Level.anything", "can not be stored")


@pytest.mark.broker
def test_a_row_type_without_a_key(site: Site, command: Start) -> None:
    row = """
        class Level(s.Row):
            id: str
        """
    refused(command("run", str(site.job_file(row=row))), 2, "no key column", "s.Key[str]")


@pytest.mark.broker
def test_a_storage_that_can_not_be_written(site: Site, command: Start) -> None:
    (site.folder / "data").write_text("a file, where a folder should be")
    refused(command("run", str(site.job_file())), 2, "Not a directory", str(site.storage))


@pytest.mark.spark
def test_a_row_type_that_no_longer_fits_the_table(site: Site, command: Start) -> None:
    site.create_topic("a", 1)
    site.send([snapshot("s", [{"id": "x", "price": 1.0, "size": 1.0}], topic="a")])
    run_here(site.job_file())
    row = """
        class Level(s.Row):
            id: s.Key[str]
            price: int
            colour: str
        """
    refused(
        command("run", str(site.job_file(row=row))), 2,
        "price is double, the job writes int64", "colour is new", "size is no longer there",
        "put the type back", "declare it as `... | None = None`",
    )  # fmt: skip


@pytest.mark.spark
def test_another_job_in_the_same_storage(site: Site, command: Start) -> None:
    site.create_topic("a", 1)
    site.send([snapshot("s", [], topic="a")])
    path = site.job_file()
    run_here(path)
    path.write_text(path.read_text().replace('name="books"', 'name="other"'))
    refused(command("run", str(path)), 2, "belongs to the job books")


@pytest.mark.spark
def test_bad_data_ends_the_command_with_exit_code_4(site: Site, command: Start) -> None:
    site.create_topic("a", 1)
    site.send([snapshot("s", [], topic="a"), update("s", {"id": "x", "price": 2.0}, topic="a")])
    refused(
        command("run", str(site.job_file()), "--until-caught-up"), 4,
        f"{site.prefix}a/0 offset 1, session 's'", "update of a row that is not in the table: key 'x'",
    )  # fmt: skip


@pytest.mark.spark
def test_status_and_sessions_tell_where_the_job_stands(site: Site, command: Start) -> None:
    site.create_topic("a", 1)
    rows = [{"id": "x", "price": 1.0, "size": 1.0}]
    site.send([snapshot("live", rows, seq=1, topic="a"), snapshot("half", rows, seq=1, chunk=0, chunks=2, topic="a")])
    path = site.job_file()
    run_here(path)
    site.send([update("live", {"id": "x", "price": 2.0}, seq=2, topic="a")])
    for target in (path, site.storage):
        shown = command("status", str(target), "--json")
        assert shown.ends() == 0, shown.text
        status = msgspec.json.decode(shown.text)
        assert (status["job"], status["epoch"], status["counts"]["records"], status["lag"]) == ("books", 1, 2, 1)
        assert status["lanes"][0]["next_offset"] == 2
    for arguments in (("status", str(path)), ("sessions", str(path))):
        shown = command(*arguments)
        assert shown.ends() == 0, shown.text
    assert "waiting for its snapshot" in shown.text
    shown = command("sessions", str(site.storage), "--json")
    assert shown.ends() == 0, shown.text
    assert [(found["session"], found["rows"]) for found in msgspec.json.decode(shown.text)] == [
        ("half", None),
        ("live", 1),
    ]


@pytest.mark.spark
def test_records_of_a_partition_that_was_never_read_count_as_lag(site: Site, command: Start) -> None:
    site.create_topic("a", 1)
    site.send([snapshot("s", [], topic="a")])
    path = site.job_file()
    run_here(path)
    site.create_topic("later", 2)
    site.send([snapshot(f"s{number}", [], topic="later", partition=1) for number in range(3)])
    shown = command("status", str(path), "--json")
    assert shown.ends() == 0, shown.text
    status = msgspec.json.decode(shown.text)
    assert status["lag"] == 3
    assert [(lane["topic"], lane["partition"], lane["lag"]) for lane in status["lanes"]] == [
        (f"{site.prefix}a", 0, 0),
        (f"{site.prefix}later", 0, 0),
        (f"{site.prefix}later", 1, 3),
    ]


def test_status_of_a_storage_that_is_not_there(command: Start) -> None:
    refused(command("status", "./nowhere"), 2, "nowhere")


@pytest.mark.broker
def test_doctor_says_ok_or_what_to_do(site: Site, command: Start) -> None:
    good = command("doctor", str(site.job_file()))
    assert good.ends() == 0, good.text
    assert "create-if-absent work" in good.text
    site.bootstrap = f"127.0.0.1:{closed_port()}"
    bad = command("doctor", str(site.job_file()))
    assert bad.ends() == 3, bad.text
    assert "FAILED" in bad.text and "to do: " in bad.text


def test_init_writes_a_job_file_that_loads_and_never_overwrites(command: Start, tmp_path: Path) -> None:
    written = command("init", "mine.py")
    assert written.ends() == 0, written.text
    from seriatim.loader import read_job_file

    assert read_job_file(str(tmp_path / "mine.py")).load().name == "mine"
    refused(command("init", "mine.py"), 2, "exists already")


@pytest.mark.parametrize(
    "name",
    ["run", "status", "sessions", "incidents", "gaps", "broker", "broker start", "doctor", "init", "produce", "verify"],
)
def test_every_command_has_help_with_an_example(command: Start, name: str) -> None:
    shown = command(*name.split(), "--help")
    assert shown.ends() == 0
    assert "Example" in shown.text


def test_secrets_are_never_printed(command: Start, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import seriatim as s\n"
        "class Level(s.Row):\n    id: s.Key[str]\n"
        f'job = s.Job(name="j", source=s.Kafka("127.0.0.1:{closed_port()}", topics="a",\n'
        '    options={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",\n'
        '             "sasl.username": "ann", "sasl.password": "hush-hush"}),\n'
        '    codec=s.JsonEnvelope(Level), operator=s.RebuildTable(Level), storage="./data")\n'
        "print(job)\n"
    )
    running = command("run", "job.py")
    refused(running, 3, "No answer from Kafka")
    assert "hush-hush" not in running.text

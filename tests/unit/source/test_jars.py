"""Fetching jars, with a stand-in for Java: a script that counts its calls and writes the jars Ivy would write."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from seriatim.errors import ConfigurationError, EnvironmentFailure
from seriatim.source import jars, java

FAKE_JAVA = """#!/bin/sh
if [ "$1" = "-version" ]; then echo 'openjdk version "{version}"' >&2; exit 0; fi
echo "$@" >> "{calls}"
{fetch}
"""

# The last argument is the pattern of the files to write; $conf is the one before "-retrieve".
WRITE_JARS = """
while [ "$1" != "-confs" ]; do shift; done
conf=$2; folder="${{4%%/\\[conf\\]*}}/$conf"; mkdir -p "$folder"
for jar in {names}; do echo bytes > "$folder/$jar"; done
"""

ALL_NAMES = " ".join(dependency.file_name for dependency in jars.dependencies(jars.CONNECTOR))

InstallJava = Callable[..., Path]


@pytest.fixture
def install_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstallJava:
    """Puts a stand-in for Java in place; gives the file that lists its calls (one line for each fetch)."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("SERIATIM_CACHE", str(tmp_path / "cache"))
    calls = tmp_path / "calls"

    def install(*, version: str = "17.0.15", fetch: str = WRITE_JARS.format(names=ALL_NAMES)) -> Path:
        script = tmp_path / "jdk" / "bin" / "java"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(FAKE_JAVA.format(version=version, calls=calls, fetch=fetch))
        script.chmod(0o755)
        return calls

    return install


def fetches(calls: Path) -> int:
    return len(calls.read_text().splitlines()) if calls.exists() else 0


def test_jars_are_fetched_once(install_java: InstallJava) -> None:
    calls = install_java()
    first = jars.connector_jars()
    assert [jar.name for jar in first] == sorted(ALL_NAMES.split())
    assert jars.connector_jars() == first
    assert fetches(calls) == 1


def test_a_change_of_revisions_fetches_again(
    install_java: InstallJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = install_java()
    jars.connector_jars()
    changed = tmp_path / "ivy.xml"
    changed.write_text(jars.IVY_FILE.read_text() + "<!-- changed -->")
    monkeypatch.setattr(jars, "IVY_FILE", changed)
    jars.connector_jars()
    assert fetches(calls) == 2


def test_connector_and_broker_do_not_share_a_folder() -> None:
    assert jars.jars_folder(jars.CONNECTOR) != jars.jars_folder(jars.BROKER)


def test_two_processes_fetch_once(install_java: InstallJava) -> None:
    calls = install_java(fetch="sleep 0.5" + WRITE_JARS.format(names=ALL_NAMES))
    command = [sys.executable, "-c", "from seriatim.source import jars; print(*jars.connector_jars())"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=60)[0] for process in both]
    assert answers[0] == answers[1] != ""
    assert fetches(calls) == 1


def test_a_failed_fetch_leaves_nothing_and_says_what_ivy_said(install_java: InstallJava, tmp_path: Path) -> None:
    install_java(fetch="echo first line; for i in $(seq 30); do echo noise; done; echo no such host; exit 1")
    with pytest.raises(EnvironmentFailure) as caught:
        jars.connector_jars()
    assert "no such host" in caught.value.detail
    assert "first line" not in caught.value.detail
    assert caught.value.hint
    assert not [path for path in (tmp_path / "cache" / "jars").iterdir() if path.is_dir()]


def test_a_fetch_that_forgot_a_jar_is_no_fetch(install_java: InstallJava) -> None:
    """Ivy can end well and still leave out an artifact."""
    install_java(fetch=WRITE_JARS.format(names=" ".join(ALL_NAMES.split()[1:])))
    with pytest.raises(EnvironmentFailure, match=ALL_NAMES.split(maxsplit=1)[0]):
        jars.connector_jars()
    assert not jars.jars_folder(jars.CONNECTOR).exists()


def test_a_fetch_that_ivy_calls_failed_is_no_fetch(install_java: InstallJava) -> None:
    """Every jar that ivy.xml names may be there, and one that they need be missing."""
    install_java(fetch=WRITE_JARS.format(names=ALL_NAMES) + "\nexit 1")
    with pytest.raises(EnvironmentFailure):
        jars.connector_jars()


def test_a_killed_fetch_does_not_disturb_the_next(install_java: InstallJava) -> None:
    install_java()
    folder = jars.jars_folder(jars.CONNECTOR)
    abandoned = folder.with_name(f".{folder.name}.killed") / "connector"
    abandoned.mkdir(parents=True)
    (abandoned / "half.jar").write_text("ha")
    assert "half.jar" not in [jar.name for jar in jars.connector_jars()]
    assert not abandoned.exists()


def test_a_jar_removed_by_hand_is_fetched_again(install_java: InstallJava) -> None:
    calls = install_java()
    removed = next(jar for jar in jars.connector_jars() if jar.name.startswith("kafka-clients"))
    removed.unlink()
    assert jars.missing_jars([jars.CONNECTOR]) == [removed.name]
    assert removed in jars.connector_jars()
    assert fetches(calls) == 2


def test_asking_what_is_missing_fetches_nothing(install_java: InstallJava) -> None:
    calls = install_java()
    assert len(jars.missing_jars([jars.CONNECTOR])) == 4
    assert fetches(calls) == 0
    jars.connector_jars()
    assert jars.missing_jars([jars.CONNECTOR]) == []
    assert jars.missing_jars([jars.BROKER]) != []


def test_packages_are_the_coordinates_of_the_connector_alone() -> None:
    assert jars.packages().split(",")[0] == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
    assert "kafka_2.13" not in jars.packages()


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    for name in ("SERIATIM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert jars.cache_folder() == Path("/h/.cache/seriatim")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert jars.cache_folder() == Path("/x/seriatim")
    monkeypatch.setenv("SERIATIM_CACHE", "/own")
    assert jars.cache_folder() == Path("/own")


def test_the_connector_is_of_the_installed_spark() -> None:
    assert f"spark-sql-kafka-0-10_2.13-{version('pyspark')}.jar" in ALL_NAMES.split()


def test_fetching_does_not_import_pyspark(install_java: InstallJava) -> None:
    install_java()
    program = "import sys; from seriatim.source import jars; jars.connector_jars(); print('pyspark' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("text", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.15", 17), ("21", 21), ("25-ea", 25)]
)
def test_java_versions_old_and_new_are_understood(install_java: InstallJava, text: str, major: int) -> None:
    install_java(version=text)
    assert java.java_version(java.find_java()) == major


def test_an_old_java_is_refused_with_a_remedy(install_java: InstallJava) -> None:
    install_java(version="11.0.2")
    with pytest.raises(ConfigurationError, match="Java 11 is too old") as caught:
        java.usable_java()
    assert "make setup" in caught.value.hint


def test_a_missing_java_is_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(ConfigurationError, match="not installed") as caught:
        java.find_java()
    assert "openjdk-17-jre-headless" in caught.value.hint


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="JAVA_HOME") as caught:
        java.find_java()
    assert str(tmp_path) in caught.value.detail

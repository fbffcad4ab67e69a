"""The jars of the Kafka connector and of the embedded broker: named in `ivy.xml`, fetched once into a user cache.

The Ivy that PySpark ships does the fetching, so nothing but Java is needed. A folder in the cache is named by a hash of
`ivy.xml`, so other revisions are other folders; it appears by a rename, so it is either whole or not there. Nothing
here imports pyspark, and nothing is fetched unless jars are asked for.

`python -m seriatim.source.jars` fetches everything and prints what it did.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from seriatim import clock
from seriatim.errors import ConfigurationError, EnvironmentFailure
from seriatim.source.java import usable_java
from seriatim.source.lock import exclusive

CONNECTOR: Final = "connector"
BROKER: Final = "broker"
IVY_FILE: Final = Path(__file__).with_name("ivy.xml")
FETCH_SECONDS_MAX: Final = 900.0
DETAIL_LINES: Final = 15


@dataclass(frozen=True)
class Dependency:
    conf: str
    organisation: str
    name: str
    revision: str

    @property
    def coordinate(self) -> str:
        return f"{self.organisation}:{self.name}:{self.revision}"

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.revision}.jar"


def connector_jars() -> list[Path]:
    """What Spark needs to read Kafka; fetched if it is not in the cache yet."""
    return _fetched(CONNECTOR)


def broker_jars() -> list[Path]:
    """The embedded broker's whole class path; fetched if it is not in the cache yet."""
    return _fetched(BROKER)


def packages() -> str:
    """The connector as `spark-submit --packages` takes it, for clusters that fetch their own jars."""
    return ",".join(dependency.coordinate for dependency in dependencies(CONNECTOR))


def missing_jars(confs: Sequence[str] = (CONNECTOR, BROKER)) -> list[str]:
    """Names of the jars in `ivy.xml` that are not in the cache. Fetches nothing."""
    return [jar for conf in confs for jar in _absent(conf, jars_folder(conf))]


def cache_folder() -> Path:
    """`$SERIATIM_CACHE`, else `$XDG_CACHE_HOME/seriatim`, else `~/.cache/seriatim`."""
    own = os.environ.get("SERIATIM_CACHE", "")
    if own:
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if shared else Path.home() / ".cache") / "seriatim"


def jars_folder(conf: str) -> Path:
    """Where the jars of `conf` are, or will be once fetched."""
    digest = hashlib.sha256(IVY_FILE.read_bytes() + conf.encode()).hexdigest()
    return cache_folder() / "jars" / f"{conf}-{digest[:16]}"


def _fetched(conf: str) -> list[Path]:
    folder = jars_folder(conf)
    if _absent(conf, folder):
        # Two minutes more than a fetch may take: whoever waits here finds the folder filled by the holder.
        with exclusive(folder.with_suffix(".lock"), wait_seconds_max=FETCH_SECONDS_MAX + 120):
            if _absent(conf, folder):
                _fetch_into(folder, conf)
    return sorted(folder.glob("*.jar"))


def _fetch_into(folder: Path, conf: str) -> None:
    with _workshop(folder) as workshop:
        output = _run_ivy(conf, workshop)
        absent = _absent(conf, workshop / conf)
        if absent:
            raise EnvironmentFailure(
                f"the {conf} jars could not be fetched: {', '.join(absent)} missing",
                detail=_last_lines(output),
                hint=_fetch_hint(),
            )
        # Reached with an incomplete folder only when somebody removed jars from it by hand.
        shutil.rmtree(folder, ignore_errors=True)
        (workshop / conf).rename(folder)


@contextmanager
def _workshop(folder: Path) -> Iterator[Path]:
    """A temporary sibling of `folder` (the same disk, so that a rename is atomic), gone afterwards."""
    prefix = f".{folder.name}."
    # The lock is held, so a workshop that is still here belongs to a fetch that was killed.
    for abandoned in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent) as workshop:
        yield Path(workshop)


def _run_ivy(conf: str, workshop: Path) -> str:
    try:
        answer = subprocess.run(
            _ivy_command(conf, workshop),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailure(
            f"fetching the {conf} jars took more than {FETCH_SECONDS_MAX:.0f} s", hint=_fetch_hint()
        ) from error
    if answer.returncode != 0:
        raise EnvironmentFailure(
            f"the {conf} jars could not be fetched", detail=_last_lines(answer.stdout), hint=_fetch_hint()
        )
    return answer.stdout


def _ivy_command(conf: str, workshop: Path) -> list[str]:
    settings = os.environ.get("SERIATIM_IVY_SETTINGS", "")
    return [
        str(usable_java()),
        "-jar",
        str(_ivy_jar()),
        *(["-settings", settings] if settings else []),
        *["-ivy", str(IVY_FILE)],
        *["-cache", str(workshop / "ivy")],
        # Kafka's own dependencies are of both types; with `jar` alone the broker lacks classes.
        *["-types", "jar", "bundle"],
        *["-confs", conf],
        *["-retrieve", f"{workshop}/[conf]/[artifact]-[revision].[ext]"],
    ]


def _ivy_jar() -> Path:
    # find_spec looks for the package without running it: importing pyspark takes half a second.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError("PySpark is not installed", hint="run `make setup`, or `pip install seriatim`")
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise ConfigurationError(
            "this PySpark does not ship Ivy, which fetches our jars",
            detail=f"no ivy-*.jar in {Path(spec.origin).parent / 'jars'}",
            hint="install the full `pyspark` package, not `pyspark-client`",
        )
    return found[-1]


def dependencies(conf: str) -> list[Dependency]:
    """The jars that `ivy.xml` names for `conf`, without what they drag along."""
    entries = ElementTree.parse(IVY_FILE).getroot().iterfind("dependencies/dependency")
    return [
        Dependency(conf, entry.attrib["org"], entry.attrib["name"], entry.attrib["rev"])
        for entry in entries
        if entry.attrib["conf"].startswith(f"{conf}->")
    ]


def _absent(conf: str, folder: Path) -> list[str]:
    """Jars that `ivy.xml` names and `folder` lacks. What they drag along came in the same rename, or not at all."""
    return [jar for jar in (dependency.file_name for dependency in dependencies(conf)) if not (folder / jar).is_file()]


def _last_lines(output: str) -> str:
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    return "\n".join(lines[-DETAIL_LINES:])


def _fetch_hint() -> str:
    return (
        "check the network and try again; behind a proxy set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...; "
        "for a mirror of Maven Central set SERIATIM_IVY_SETTINGS to an ivysettings.xml; "
        f"or copy a filled cache from another machine to {cache_folder()}"
    )


def _main() -> None:
    """Quiet when there is nothing to do."""
    for conf in (CONNECTOR, BROKER):
        if missing_jars([conf]):
            started_at = clock.monotonic()
            _say(f"fetching the {conf} jars ...")
            jars = _fetched(conf)
            _say(f"  {len(jars)} jars in {clock.monotonic() - started_at:.0f} s, in {jars_folder(conf)}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        _main()
    except (ConfigurationError, EnvironmentFailure) as failure:
        raise SystemExit(str(failure)) from None

"""The style is a test: who may import whom, what every module has, and what no file may hold."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "seriatim"
MODULES = sorted(PACKAGE.rglob("*.py"))
OUR_CODE = [path for folder in ("src", "tests", "examples", "bench") for path in sorted((ROOT / folder).rglob("*.py"))]

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60

GROUND_FLOOR = {"model", "errors", "job", "clock", "paths", "row", "structs", "version", "durations"}
PURE_ROOMS = ("codec", "operator", "integrity")
# The judge of the ledger reads what manifests and lane results say. It may see these two, and must not reach beyond.
PROTOCOL_MAY_SEE = GROUND_FLOOR | {"ledger.manifest", "partition.result"}

# Who may import a package from outside. A trailing slash means a whole room.
ONLY_IN = {
    "pyspark": ("engine/spark.py", "engine/spark_merge.py", "query/spark.py"),
    "py4j": ("engine/spark.py", "engine/spark_merge.py"),
    "confluent_kafka": ("source/", "tools/"),
    "confluent_kafka.admin": ("source/",),
    "deltalake": ("ledger/delta.py", "tools/", "observe/", "query/", "testing.py"),
    "obstore": ("store.py",),
    "time": ("clock.py",),
    "pickle": (),
    "cloudpickle": (),
    "marshal": (),
    "shelve": (),
    "duckdb": ("tools/", "observe/", "query/"),
    "click": ("cli/",),
}
# What executors import for every task must not drag in what only a driver needs.
LIGHT_ROOMS = ("codec", "operator", "integrity", "partition", "state", "output")
HEAVY = ("pyspark", "deltalake", "confluent_kafka", "duckdb", "pandas", "click")

NO_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "base", "core", "manager"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def inside(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file: `from a import b` gives `a` and `a.b`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)} imports relatively; say where from"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> set[str]:
    """The modules of ours that a file imports, without the package's name: `ledger.manifest`, `model`."""
    found = set()
    for imported in imports(path):
        if imported.startswith("seriatim."):
            inner = imported.removeprefix("seriatim.")
            if (PACKAGE / f"{inner.replace('.', '/')}.py").exists() or (PACKAGE / inner.replace(".", "/")).is_dir():
                found.add(inner)
    return found


def rooms(*names: str) -> list[Path]:
    return [path for path in MODULES if inside(path).split("/")[0] in names]


def matches(imported: str, package: str) -> bool:
    return imported == package or imported.startswith(f"{package}.")


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 40
    assert own_imports(PACKAGE / "ledger" / "protocol.py")
    assert "ledger.protocol" in own_imports(PACKAGE / "ledger" / "ledger.py")


def test_the_pure_rooms_see_only_the_ground_floor_and_themselves() -> None:
    strangers = [
        f"{inside(path)} imports {imported}"
        for path in rooms(*PURE_ROOMS)
        for imported in own_imports(path)
        if imported.split(".")[0] not in GROUND_FLOOR | {inside(path).split("/")[0]}
    ]
    assert strangers == []


def test_the_pure_rooms_touch_nothing_outside() -> None:
    forbidden = ("os", "pathlib", "socket", "subprocess", "logging", "random", "threading", "pyarrow", "io", "uuid")
    strangers = [
        f"{inside(path)} imports {imported}"
        for path in [*rooms(*PURE_ROOMS), PACKAGE / "ledger" / "protocol.py"]
        for imported in imports(path)
        if any(matches(imported, package) for package in forbidden)
    ]
    assert strangers == []


def test_the_judge_of_the_ledger_sees_only_what_it_judges() -> None:
    seen = own_imports(PACKAGE / "ledger" / "protocol.py") - {"ledger", "partition"}
    assert seen <= PROTOCOL_MAY_SEE


def test_each_foreign_package_is_imported_only_where_it_belongs() -> None:
    strangers = [
        f"{inside(path)} imports {imported}"
        for path in MODULES
        for imported in imports(path)
        for package, places in ONLY_IN.items()
        if matches(imported, package)
        and not any(
            inside(path) == place or (place.endswith("/") and inside(path).startswith(place)) for place in places
        )
    ]
    assert strangers == []


def test_what_travels_to_executors_imports_nothing_heavy() -> None:
    heavy = [
        f"{inside(path)} imports {imported}"
        for path in rooms(*LIGHT_ROOMS)
        for imported in imports(path)
        if any(matches(imported, package) for package in HEAVY)
    ]
    assert heavy == []


def calls(path: Path) -> Iterator[tuple[str, int]]:
    """Every call as its dotted text, with its line."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def test_only_the_clock_reads_time() -> None:
    reads = re.compile(
        r"(^|\.)(datetime\.(now|utcnow|today)|date\.today|time\.(time|time_ns|monotonic|sleep|perf_counter))$"
    )
    found = [f"{inside(path)}:{line}" for path in MODULES for call, line in calls(path) if reads.search(call)]
    assert [place for place in found if not place.startswith("clock.py")] == []


def test_nothing_is_printed_outside_the_command() -> None:
    found = [f"{inside(path)}:{line}" for path in MODULES for call, line in calls(path) if call == "print"]
    assert [place for place in found if not place.startswith("cli/")] == []


def test_the_tests_never_sleep_but_between_two_looks_at_a_condition() -> None:
    for path in [path for path in OUR_CODE if "tests" in path.parts]:
        looks = [node for node in ast.walk(tree(path)) if isinstance(node, ast.While)]
        for call, line in calls(path):
            between = any(look.lineno < line <= (look.end_lineno or 0) for look in looks)
            assert between or not call.endswith("sleep"), f"{name(path)}:{line}"


def test_every_module_says_what_it_is_for() -> None:
    silent = [name(path) for path in [*MODULES, *(ROOT / "tests").rglob("*.py")] if not ast.get_docstring(tree(path))]
    assert silent == []


def test_files_stay_short() -> None:
    sizes = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in OUR_CODE}
    assert {path: lines for path, lines in sizes.items() if lines > FILE_LINES_MAX} == {}


def test_functions_fit_a_screen() -> None:
    long = [
        f"{name(path)}:{node.lineno} {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"
        for path in OUR_CODE
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert [name(path) for path in OUR_CODE if NO_NAMES & {path.stem, *(part for part in path.parts[-2:-1])}] == []


def comments(path: Path, word: str) -> list[tuple[int, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(number, line) for number, line in enumerate(lines, 1) if word in line]


def test_every_ignored_type_error_has_a_code_and_a_reason() -> None:
    right = re.compile(r"# type: " + r"ignore\[[a-z-]+(, [a-z-]+)*\]  # .{3,}")
    bare = [
        f"{name(path)}:{number}"
        for path in OUR_CODE
        for number, line in comments(path, "type:" + " ignore")
        if not right.search(line)
    ]
    assert bare == []


def test_every_silenced_lint_has_a_code_and_a_reason() -> None:
    right = re.compile(r"# no" + r"qa: [A-Z]+\d+(, [A-Z]+\d+)* \(.{3,}\)")
    bare = [
        f"{name(path)}:{number}"
        for path in OUR_CODE
        for number, line in comments(path, "# no" + "qa")
        if not right.search(line)
    ]
    assert bare == []


def test_every_to_do_has_a_number() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    open_ends = [
        f"{name(path)}:{number}"
        for path in OUR_CODE
        for word in words
        for number, line in comments(path, word)
        if not re.search(rf"{word}\(#\d+\)", line)
    ]
    assert open_ends == []


@cache
def tracked() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git repository")
    return tuple(path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file())


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked():
        try:
            yield name(path), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


# This file alone may hold them.
NOWHERE = {
    "a path of one machine": r"/(?:home|Users|root)/\w",
    "a private index or mirror": r"(?i)\b(?:artifactory|jfrog|nexus|devpi|index-url|extra-index-url|mirror\.[a-z]+\.)",
    "a private address": r"\b(?:10\.\d+\.\d+\.\d+|192\.168\.\d+\.\d+|172\.(?:1[6-9]|2\d|3[01])\.\d+\.\d+)\b",
    "a key": r"AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY",
}


@pytest.mark.parametrize("what", NOWHERE)
def test_no_tracked_file_holds(what: str) -> None:
    found = [
        f"{path}: {match.group(0)}"
        for path, text in texts()
        if path != name(Path(__file__))
        for match in [re.search(NOWHERE[what], text)]
        if match
    ]
    assert found == []


def test_tests_read_as_sentences() -> None:
    short = [
        f"{name(path)}: {node.name}"
        for path in OUR_CODE
        if path.stem.startswith("test_")
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and node.name.count("_") < 2
    ]
    assert short == []

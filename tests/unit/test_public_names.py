"""The public names: sorted, importable, and no others."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import seriatim


def test_the_public_names_are_sorted_and_named_once() -> None:
    assert seriatim.__all__ == sorted(set(seriatim.__all__))


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in seriatim.__all__ if not hasattr(seriatim, name)] == []


def test_what_a_type_checker_sees_is_what_the_package_gives() -> None:
    tree = ast.parse(Path(seriatim.__file__).read_text(encoding="utf-8"))
    seen = {
        (node.module, alias.asname or alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("seriatim.")
        for alias in node.names
    }
    given = {(home, name) for home, names in seriatim._HOMES.items() for name in names}
    assert seen == given | {("seriatim.version", "__version__")}
    assert {name for _, name in seen} == set(seriatim.__all__)


def test_a_name_that_is_not_public_is_not_given() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        seriatim.Nothing  # type: ignore[attr-defined]  # noqa: B018 (that is the question)


@pytest.mark.parametrize("light", ["import seriatim", "import seriatim.cli.main"])
def test_the_package_and_its_help_load_nothing_heavy(light: str) -> None:
    """Arrow alone takes longer than all of `seriatim --help` should."""
    told = subprocess.run(
        [sys.executable, "-c", f"import sys; {light}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    heavy = {"pyarrow", "numpy", "msgspec", "deltalake", "obstore", "confluent_kafka", "pyspark", "asyncio"}
    assert heavy & set(told.stdout.split()) == set()


def test_the_version_is_a_version() -> None:
    assert all(part.isdigit() for part in seriatim.__version__.split("."))

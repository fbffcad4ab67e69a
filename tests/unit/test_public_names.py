"""The public names: sorted, importable, and no others."""

import ast
from pathlib import Path

import seriatim


def test_the_public_names_are_sorted_and_named_once() -> None:
    assert seriatim.__all__ == sorted(set(seriatim.__all__))


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in seriatim.__all__ if not hasattr(seriatim, name)] == []


def test_what_the_package_imports_is_what_it_gives() -> None:
    tree = ast.parse(Path(seriatim.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == set(seriatim.__all__)


def test_the_version_is_a_version() -> None:
    assert all(part.isdigit() for part in seriatim.__version__.split("."))

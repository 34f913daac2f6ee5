"""The names that a minimal operator needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import opsdk


@pytest.mark.parametrize("name", opsdk.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(opsdk, name) is not None  # an alias of a type goes by another name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Operator"):
        getattr(opsdk, "Operator")  # noqa: B009 - the checkers would refuse the attribute


def test_importing_the_root_imports_nothing_else() -> None:
    code = "import opsdk, sys; print([name for name in sys.modules if name.startswith(('opsdk.', 'lightkube'))])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['opsdk._lightkube']"

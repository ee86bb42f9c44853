"""The public names of `tailrace.testing`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tailrace import testing


def test_every_public_name_is_found_and_has_a_docstring() -> None:
    assert testing.__all__ == sorted(testing.__all__)
    assert dir(testing) == sorted(testing.__all__)
    assert all(getattr(testing, name).__doc__ for name in testing.__all__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'tailrace.testing' has no attribute 'Nothing'"):
        testing.Nothing  # noqa: B018


@pytest.mark.parametrize("module", ["tailrace.testing", "tailrace.testing.plugin"])
def test_importing_it_imports_no_dependency(module: str) -> None:
    code = f"import pytest, sys; before = set(sys.modules); import {module}"
    found = (
        f"{code}; print(*sorted({{name.partition('.')[0] for name in set(sys.modules) - before}}))"
    )
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tailrace"]

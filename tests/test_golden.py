"""Every case of the golden numbers has a test; `pytest -k golden` runs them all."""

import ast
import json
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CASES = [case["id"] for case in json.loads((TESTS / "golden" / "golden.json").read_text())["cases"]]


def _asked_for():
    """Text that stands by itself in tests that take `golden`, in their parameters included."""
    found = set()
    for file in TESTS.rglob("test_*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "golden" in {
                argument.arg for argument in node.args.args
            }:
                found |= {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
    return found


@pytest.fixture(scope="module")
def asked_for():
    return _asked_for()


@pytest.mark.golden
@pytest.mark.parametrize("case_id", CASES)
def test_every_case_is_asked_for_by_a_test(asked_for, case_id):
    assert case_id in asked_for

"""Every case of the golden numbers has a test; `pytest -k golden` runs them all."""

import ast
import json
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CASES = [case["id"] for case in json.loads((TESTS / "golden" / "golden.json").read_text())["cases"]]

NOT_OURS = {
    "fedtorch_affine8": "The rounding of FedCOMGATE's authors, which is not QSGD. FedCOM sends by qsgd, as "
    "FedPAQ does; nothing here is rounded to eight affine bits, and no method asks for it.",
}
"""Cases of rules that are no part of this project, and why."""


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
def test_a_case_has_a_test_or_a_reason_for_none(asked_for, case_id):
    assert (case_id in asked_for) != (case_id in NOT_OURS)


def test_reasons_are_given_for_cases_that_there_are():
    assert set(NOT_OURS) <= set(CASES)

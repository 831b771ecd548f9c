"""Every error of the project stands in one tree, and the tree is written down."""

import re
from pathlib import Path

from fedat_service import errors

PACKAGES = ("fedat_service", "workers", "loadtest")
ROOT = Path(errors.__file__).parents[1]


def test_the_tree_that_is_written_down_is_the_tree():
    written = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or "")) | {"FedATError"}
    classes = {
        name
        for name, one in vars(errors).items()
        if isinstance(one, type) and one.__module__ == errors.__name__
    }
    assert written == classes


def test_no_error_that_others_may_catch_stands_elsewhere():
    elsewhere = [
        (file.name, name)
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if file != Path(errors.__file__)
        for name, base in re.findall(r"^class ([A-Za-z]\w*)\((\w+)", file.read_text("utf-8"), re.MULTILINE)
        if base.endswith(("Error", "Exception")) or base in vars(errors)
    ]
    assert elsewhere == []

import sys

import pytest

from fedat_service.errors import NotMeasured
from loadtest.benchmarks.peers import processes
from loadtest.benchmarks.peers.processes import output_of, tried_twice


def python(code):
    return [sys.executable, "-c", code]


def test_what_a_process_writes_is_returned():
    assert output_of(python("print('all is well')")).strip() == "all is well"


def test_what_a_process_complains_of_is_not_shown_if_it_succeeds(capfd):
    output_of(python("import sys; sys.stderr.write('noise')"))
    assert capfd.readouterr().err == ""


def test_a_process_that_fails_is_told_by_its_last_line_and_shows_all(capfd):
    with pytest.raises(NotMeasured) as told:
        output_of(python("import sys; sys.exit('first\\nlast words\\n=====\\n')"))
    assert str(told.value) == "last words"
    assert "first" in capfd.readouterr().err


def test_a_process_that_fails_without_a_word_is_told_by_its_status():
    with pytest.raises(NotMeasured, match="exit status 3"):
        output_of(python("raise SystemExit(3)"))


def test_a_process_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(processes, "_LONGEST_S", 0.5)
    with pytest.raises(NotMeasured, match=r"within 0\.5 s"):
        output_of(python("import time; time.sleep(60)"))


def test_a_process_has_the_variables_given():
    assert output_of(python("import os; print(os.environ['ONE'])"), {"ONE": "1"}).strip() == "1"


def failing(times):
    left = ["no"] * times

    def attempt():
        if left:
            raise NotMeasured(left.pop())
        return "done"

    return attempt


def test_a_first_failure_is_forgiven_and_told(capsys):
    assert tried_twice("pfl", failing(1)) == "done"
    assert "pfl" in capsys.readouterr().err


def test_a_second_failure_is_not():
    with pytest.raises(NotMeasured):
        tried_twice("pfl", failing(2))


def test_what_succeeds_is_done_once(capsys):
    assert tried_twice("pfl", failing(0)) == "done"
    assert capsys.readouterr().err == ""

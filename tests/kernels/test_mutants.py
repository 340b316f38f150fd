"""Every planted bug is noticed by a test (minutes: each runs tests of its own)."""

import pytest

from tests.kernels.mutants import MUTANTS, ROOT, run


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_to_change_is_there(mutant):
    assert mutant.old in (ROOT / mutant.file).read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.kernel
def test_without_a_bug_the_chosen_tests_pass():
    for file, words in dict.fromkeys(mutant.tests for mutant in MUTANTS):
        done = run(file, words)
        assert done.returncode == 0, done.stdout


@pytest.mark.long
@pytest.mark.kernel
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_noticed(mutant):
    status = run(*mutant.tests, mutant).returncode
    assert status == 1 or status < 0  # a failed test, or a crash of the interpreter

"""lessons/marks.py: inline marks."""

import pytest

from lessons.errors import LessonError
from lessons.marks import Cite, Fig, Req, plain, split


def test_splits_text_and_marks_in_order():
    text = "a [[fig:x8]] b [[fig:x8!]][[req:12]] c [[cite:orca]]"
    assert split(text) == ["a ", Fig("x8", False), " b ", Fig("x8", True), Req(12), " c ", Cite("orca")]
    assert plain(text) == "a  b  c "


@pytest.mark.parametrize("mark", ["[[fig:]]", "[[req:0]]", "[[req:x]]", "[[term:y]]", "[[fig:A!!]]", "[[]]"])
def test_an_unknown_mark_is_an_error_that_names_it(mark):
    with pytest.raises(LessonError, match="unknown mark"):
        split(f"text {mark}")

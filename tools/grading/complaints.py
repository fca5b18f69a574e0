"""What is said of an error in a student's code: to the teacher all of it; to the student its kind, the line,
and what it says, where that holds nothing of a hidden call.
"""

import builtins
import re

from tools.grading import worker

NOT_DONE = "not done"


def printable(text):
    """The text with what a terminal obeys, or no file can hold, spelt out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class Failed(Exception):
    """A call without a result. Its text is one line, for the teacher: it may quote what it was handed."""

    def __init__(self, text, brief=None):
        super().__init__(printable(" ".join(text.split())))
        self._brief = brief

    def brief(self):
        """For the student: without what the student's own code may have made of what it was handed."""
        return str(self) if self._brief is None else self._brief


def raised(found, cells):
    """`Failed` of what the worker says of an error. Its kind, its place and its text may be forged there; the
    student's line is read from the cell that we hold.
    """
    kind, text, cell, line = (found.get(name) for name in ("kind", "text", "cell", "line"))
    kind = kind if isinstance(kind, str) and kind.isidentifier() and len(kind) < 100 else "an error"
    text = printable(" ".join(text[: worker.LONGEST].split())) if isinstance(text, str) else ""
    lines = next((code for name, code in cells if name == cell), "").splitlines()
    own = printable(lines[line - 1].strip())[:120] if type(line) is int and 0 < line <= len(lines) else ""
    if kind == "NotImplementedError" and not text and own in ("", "raise NotImplementedError"):
        return Failed(NOT_DONE)
    where, at = (f" (line {line} of its cell)", f", at `{own}`") if own else ("", "")
    known = getattr(builtins, kind, None)
    known = isinstance(known, type) and issubclass(known, BaseException)
    shown = text if known and holds_no_value(text, "\n".join(code for _, code in cells)) else ""
    words = [f": {said}" if said else "" for said in (text, shown)]
    return Failed(f"{kind}{where}{words[0]}{at}", f"{kind if known else 'an error'}{where}{words[1]}{at}")


NAME, WORDS, SHAPE = r"'[\w.]{1,60}'", r"[A-Za-z ,']+", r"\([\d, ]*\)"
SAFE = [
    r"operands could not be broadcast together with (remapped )?shapes (\([\d, ]*\) ?)+",
    r"index -?\d+ is out of bounds for axis \d+ with size \d+",
    r"(list|tuple|string)( assignment)? index out of range",
    r"pop from empty list|(float )?division by zero|math domain error|assignment destination is read-only",
    rf"(name|free variable|local variable|cannot access (local|free) variable) {NAME} {WORDS}\.?( {NAME}\?)?",
    rf"(type object )?{NAME} object ({WORDS}|has no attribute {NAME})",
    rf"module {NAME} has no attribute {NAME}",
    rf"(unsupported operand type\(s\) for|bad operand type for) .{{1,10}} {NAME}( and {NAME})?",
    rf"[\w.]+\(\) (missing|takes|got) [\w ]+(argument|arguments)(:? {NAME})?({WORDS})?( but \d+ {WORDS})?",
    rf"[\w.]+\(\) missing \d+ required {WORDS}: ({NAME}|,| |and)+",
    r"(not enough|too many) values to unpack \(expected \d+(, got \d+)?\)",
    r"cannot unpack non-iterable \w+ object",
    r"The truth value of an array with more than one element is ambiguous\. Use a\.any\(\) or a\.all\(\)",
    rf"could not broadcast input array from shape {SHAPE} into shape {SHAPE}",
    rf"shapes {SHAPE} and {SHAPE} not aligned: \d+ \(dim \d+\) != \d+ \(dim \d+\)",
    r"matmul: Input operand \d [\w ,()\->?=.]+",
    rf"cannot reshape array of size \d+ into shape {SHAPE}",
    r"axis -?\d+ is out of bounds for array of dimension \d+",
    r"too many indices for array: array is \d+-dimensional, but \d+ were indexed",
    r"only integers, slices .*are valid indices|arrays used as indices must be of integer .*type",
    r"only (length-1|0-dimensional|integer scalar) arrays can be converted to [\w ]+",
    r"zero-size array to reduction operation \w+ which has no identity",
    r"setting an array element with a sequence\..*dimensions.*",
    r"maximum recursion depth exceeded[\w ]*",
]
TYPES = "NoneType bool complex dict float function generator int list map method numpy range set str tuple"


def holds_no_value(text, code):
    """Whether the text of an error is written so in the student's code, or is one of Python's and NumPy's on
    shapes, indices and names; a name in it is a type's, or stands in the code.
    """
    if any(f"{quote}{text}{quote}" in code for quote in "'\""):
        return True
    names = (name for name in re.findall(r"'([^']*)'", text) if name.split(".")[0] not in TYPES.split())
    return any(re.fullmatch(form, text) for form in SAFE) and all(name in code for name in names)

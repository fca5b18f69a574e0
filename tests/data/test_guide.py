"""The examples of docs/LABELS_AND_FILES.md print what is shown there."""

import re
import subprocess
import sys

from tools.chapters import ROOT


def test_the_examples_print_what_is_shown(tmp_path):
    page = (ROOT / "docs" / "LABELS_AND_FILES.md").read_text()
    pairs = re.findall(r"```python\n(.*?)```\s+prints\s+```text\n(.*?)```", page, re.S)
    assert len(pairs) == page.count("```python") == page.count("\nprints\n")
    code = "".join(code for code, _ in pairs)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(shown for _, shown in pairs)

"""What runs the book, from the root of the checkout. `studies` stands beside the chapters, in notebooks/."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "notebooks"))

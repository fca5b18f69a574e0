"""The book's figures: tagged sentences, lattices, weight matrices, confusions, marginals, learning curves,
growth of cost, regularisation paths.

Every helper draws into `ax` (None: a figure of its own), labels its axes with units, and returns the numbers
it plotted, so that the cell which shows a figure can assert on what it shows. Colours are those of Okabe and
Ito (2008), Blues and PuOr: they differ in lightness too, and lines differ in dash and marker, so that neither
a colour-blind reader nor a grey print loses anything. matplotlib is loaded at the first figure.
"""

from crfbook.plotting.charts import (
    confusion,
    heatmap,
    label_bars,
    learning_curve,
    regularization_path,
    timing_growth,
    weight_matrix,
)
from crfbook.plotting.sentences import lattice, tagged_text

__all__ = [
    "confusion",
    "heatmap",
    "label_bars",
    "lattice",
    "learning_curve",
    "regularization_path",
    "tagged_text",
    "timing_growth",
    "weight_matrix",
]

"""The book's figures: tagged sentences, lattices, weight matrices, confusions, marginals, learning curves,
growth of cost, regularisation paths, reliability of probabilities, models as graphs.

Every helper draws into `ax` (None: a new figure), labels its axes with units, and returns the numbers that it
plotted, so that a cell can assert on what its figure shows. Colours are those of Okabe and Ito (2008), Blues
and PuOr. They differ in lightness, too, and lines differ in dash and marker: a colour-blind reader or a grey
print loses nothing. matplotlib is loaded at the first figure.
"""

from crfbook.plotting.charts import (
    confusion,
    heatmap,
    label_bars,
    learning_curve,
    regularization_path,
    reliability,
    timing_growth,
    weight_matrix,
)
from crfbook.plotting.graphs import graph
from crfbook.plotting.sentences import lattice, tagged_text

__all__ = [
    "confusion",
    "graph",
    "heatmap",
    "label_bars",
    "lattice",
    "learning_curve",
    "regularization_path",
    "reliability",
    "tagged_text",
    "timing_growth",
    "weight_matrix",
]

"""The style of all figures: colours, new axes of a readable size; and checks of the arrays to be drawn."""

import numpy as np

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
INK, FAINT = "#333333", "#C8C8C8"


def axes(ax, width, height):
    """`ax`, or the axes of a new figure of that size in inches."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise ImportError("crfbook.plotting needs matplotlib: pip install matplotlib") from None
    return plt.subplots(figsize=(width, height), dpi=130, layout="constrained")[1]


def plain(ax, *, frame=True):
    """Take away what carries no information."""
    for side in ("top", "right") if frame else ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(False)
    if not frame:
        ax.tick_params(length=0)


def as_array(values, shape, what):
    """`values` as a float array of that shape (None in `shape`: any length); ValueError names `what`."""
    array = np.asarray(values, dtype=float)
    fits = array.ndim == len(shape) and all(
        n is None or n == m for n, m in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = tuple("any" if n is None else n for n in shape)
        raise ValueError(f"{what}: expected an array of shape {wanted}, got {array.shape}")
    return array


def as_probabilities(values, shape, what):
    array = as_array(values, shape, what)
    bad = ~((array >= -1e-9) & (array <= 1 + 1e-9))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{what}{list(where)}: expected a number from 0 to 1, got {array[where]}")
    return array.clip(0, 1)

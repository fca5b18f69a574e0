"""Chapter 12: two more templates of Figure 2 of Sutton, Rohanimanesh and McCallum (2004), trained on data.

Second order: potentials of three chunk labels in a row, beside the chain with two. Hierarchical: types of
chunks above tags, a type ends where its chunk ends, and tags begin anew there; beside the factorial CRF.
Task, text and prior are those of the paper's Table 1.
"""

from crfbook import DCRF
from crfbook.dynamic import factorial, hierarchical, linear, second_order

from .c12 import ALL, SETTINGS, TRAINING, Labelled, Task, learn, scored_rows, template, with_column
from .harness import study
from .records import cells, each
from .work import dataset

SIZES, SEEDS = (223,), (1, 2, 3, 4, 5)
SHAPES = {  # arm: (arm that it is tested against, label columns, cliques)
    "first order": ("first order", ("chunk",), linear("chunk")),
    "second order": ("first order", ("chunk",), second_order("chunk")),
    "factorial": ("factorial", ("pos", "chunk"), factorial("pos", "chunk")),
    "hierarchical": ("factorial", ("pos", "type", "end"), hierarchical("type", "pos", "end")),
}


def levels(chunks):
    """(types, ends) of the chunk labels of a sentence: "NP" or "O", and whether the chunk ends there. A token
    outside chunks is one of its own.
    """
    types = [chunk[2:] or "O" for chunk in chunks]
    return types, [after[0] != "I" for after in [*chunks[1:], "O"]]


def chunks_of(types, ends):
    """The chunk labels of a sentence, from its levels."""
    begins = [True, *ends]
    marked = zip(types, begins, strict=False)
    return ["O" if kind == "O" else f"{'B' if begin else 'I'}-{kind}" for kind, begin in marked]


def shaped(task, columns, cliques):
    """`Labelled` of a DCRF with these label columns and cliques."""
    train, test = task.marked
    both = zip(*map(levels, train.by_sequence("chunk")), strict=True)
    for name, values in zip(("type", "end"), both, strict=True):
        train = with_column(train, name, values)
    one = learn(DCRF(cliques, columns, template=template(constant=False), **TRAINING), train)
    said = {name: [] for name in columns}
    for labels in one.model.predict(test):
        for name, values in zip(columns, zip(*labels, strict=True), strict=True):
            said[name].append(list(values))
    if "type" in said:
        said["chunk"] = list(map(chunks_of, said["type"], said["end"]))
    return Labelled(said.get("pos"), said["chunk"], [one])


def shape_rows(size, seed):
    """Rows of a subset, each tested against the arm that `SHAPES` names."""
    task = Task(SETTINGS[ALL], size, seed)
    found = {arm: shaped(task, *rest) for arm, (_, *rest) in SHAPES.items()}
    rows = []
    for base in dict.fromkeys(base for base, *_ in SHAPES.values()):
        arms = {arm: found[arm] for arm, (own, *_) in SHAPES.items() if own == base}
        rows += scored_rows(task, arms, base)
    return rows


@study("12_shapes.csv", frozen=("lbfgs", "dynamic"))
def dcrf_shapes(sizes=SIZES, seeds=SEEDS):
    """Second-order and hierarchical templates on tags and noun phrases; ten minutes."""
    yield "12_shapes.csv", each(shape_rows, cells(size=sizes, seed=seeds)), [dataset("chunking")]

"""After `python -m crfbook.warm --all` no fit and no prediction compiles a kernel, whatever the data call.

The jobs of warm-up run in one process, with whatever the kernel cache holds. From then on a kernel that
Python calls for the first time, or with arguments of other types, is one that warm-up has not compiled. So
this needs no empty cache, and does not ask whether another test has filled it.
"""

import ast
import gc
import json
import os
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

ROOT = Path(__file__).resolve().parents[2]
# kernel: why warm-up need not call it
NOT_WARMED = dict.fromkeys(
    [f"crfbook.learners.coordinate.visit.{name}" for name in ("clear_block", "propose", "write_block")],
    "called from Python after Ctrl-C alone, and compiled as a part of visit_blocks",
)


def kernels():
    """Every kernel of the package that is imported."""
    from crfbook import _jit

    every = {one for one in gc.get_objects() if isinstance(one, Dispatcher)}
    return {one for one in every if isinstance(one._cache, _jit._Cache | _jit._Memory)}


def called_by_python():
    """{name: kernel} that functions of the package call which are no kernels themselves."""
    names = [path.relative_to(ROOT).with_suffix("").parts for path in (ROOT / "crfbook").rglob("*.py")]
    modules = [import_module(".".join(name[: -1 if name[-1] == "__init__" else None])) for name in names]
    every, found = kernels(), {}
    for module in modules:
        known = vars(module)
        for node in ast.parse(Path(module.__file__).read_text()).body:
            if isinstance(node, ast.FunctionDef) and known.get(node.name) in every:
                continue
            if getattr(node, "name", "").endswith("_plain"):  # a readable sister: tests and chapters call it
                continue
            for part in ast.walk(node):
                kernel = known.get(part.id) if isinstance(part, ast.Name) else None
                if isinstance(kernel, Dispatcher) and kernel in every:
                    found[f"{kernel.__module__}.{kernel.__name__}"] = kernel
    return found


def work(train, test, letters):
    """{name: what somebody does with other text}: a fit of every algorithm, and predictions."""
    from crfbook import CRF, DCRF, HMM, MEMM
    from crfbook.dynamic import factorial
    from crfbook.models.parameters import ALGORITHMS

    def crf(data, held_out, template, **parameters):
        model = CRF(**{"template": template, "max_iterations": 3, **parameters}).fit(data)
        for scale in (1.0, 1e4):  # and with weights so large that probabilities underflow
            model.weights_ = scale * model.weights_
            model.predict(held_out)
            model.predict_marginals(held_out)

    def other(model):
        model.fit(train).predict(test)
        model.predict_marginals(test)

    found = {}
    for name in ALGORITHMS:
        some = {"algorithm": name} | ({"c1": 1.0} if name in ("owlqn", "sgd-l1", "cd", "sbcd") else {})
        data = train[:20] if name == "cd" else train
        found[name] = lambda data=data, some=some: crf(data, test, "chunking", **some)
        if name != "cd":
            found[f"{name}, letters"] = lambda some=some: crf(*letters, "letter_tests", **some)
    for loss in ("exp", "pointwise-log", "pointwise-exp"):
        found[loss] = lambda loss=loss: crf(train, test, "chunking", loss=loss, c2=1e-6, max_iterations=9)
    found["BIO"] = lambda: crf(train, test, "chunking", constraints="BIO")
    found["active"] = lambda: crf(train, test, "chunking", inference="active")
    found["HMM"], found["MEMM"] = lambda: other(HMM(template="words")), lambda: other(MEMM(template="words"))
    for inference in ("auto", "junction", "block", "sweep"):
        both = {"labels": ("pos", "chunk"), "template": "words", "max_iterations": 2, "inference": inference}
        found[f"DCRF, {inference}"] = lambda both=both: (
            DCRF(factorial("pos", "chunk"), **both).fit(train[:20]).predict(test[:20])
        )
    return found


def main():
    """Print, as JSON: kernels that warm-up has not called, and what each piece of later work compiles."""
    from crfbook import load_dataset, warm

    warnings.simplefilter("ignore")
    data, letters = (load_dataset(name, source="builtin", verbose=False) for name in ("conll2000", "nettalk"))
    called = called_by_python()
    for job, _ in warm.JOBS.values():
        job(data.train[: warm.N_SENTENCES])
    silent = sorted(name for name, kernel in called.items() if not kernel.overloads)
    new, known = {}, {kernel: len(kernel.overloads) for kernel in kernels()}
    for name, run in work(data.train[500:900], data.test, (letters.train[:300], letters.test[:100])).items():
        run()
        more = {kernel: len(kernel.overloads) for kernel in kernels()}
        new[name] = sorted(kernel.__name__ for kernel in more if more[kernel] > known.get(kernel, 0))
        known = more
    print(json.dumps({"silent": silent, "new": {name: some for name, some in new.items() if some}}))


@pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")
def test_nothing_is_compiled_after_warming_up():
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["silent"]) <= set(NOT_WARMED)
    assert found["new"] == {}


if __name__ == "__main__":
    main()

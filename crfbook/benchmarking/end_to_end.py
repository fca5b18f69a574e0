"""Columns to a trained model in a process of its own: CPU and wall seconds, peak memory.

    python -m crfbook.benchmarking.end_to_end ours      # or: crfsuite

prints one JSON line. Reading the data set lies outside the clock for both sides; the peak memory is that
of the whole process, imports included.
"""

import json
import resource
import subprocess
import sys
import time

ITERATIONS = 50


def _ours():
    from ..models.linear_chain import CRF
    from ..data import templates
    from .work import columns_of

    _, train, _ = columns_of("chunking")
    warm = CRF(template=templates.load("chunking"), c2=1.0, max_iterations=2)
    warm.fit(train.head(50))  # machine code into the process: compilation is timed apart

    def run():
        model = CRF(template=templates.load("chunking"), c2=1.0, max_iterations=ITERATIONS, n_jobs=1)
        return model.fit(train).objective_
    return run


def _crfsuite():
    from .crfsuite import model_file, trainer
    from .work import attribute_strings, columns_of

    _, train, _ = columns_of("chunking")

    def run():
        it = trainer(attribute_strings(train, "chunking"), train.labels_by_sequence(),
                     max_iterations=ITERATIONS)
        it.train(model_file())
        return it.logparser.last_iteration["loss"]
    return run


def in_own_process(side):
    """Run one side in a fresh interpreter; returns its JSON as a dict."""
    done = subprocess.run([sys.executable, "-m", __name__, side], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{side}: the process failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(side):
    run = {"ours": _ours, "crfsuite": _crfsuite}[side]()
    cpu, wall = time.process_time(), time.perf_counter()
    objective = run()
    print(json.dumps({
        "cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "objective": objective,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main(sys.argv[1])

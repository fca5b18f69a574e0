"""Columns to a trained model in a process of its own: CPU and wall seconds, peak memory.

    python -m crfbook.benchmarking.end_to_end ours      # or: crfsuite

prints one JSON line. Reading the data set lies outside the clock for both sides; the peak memory is that
of the whole process, imports included, but not of the process that started it (which `ru_maxrss` counts in).
"""

import json
import subprocess
import sys
import time

ITERATIONS = 50


def _ours():
    from ..data import templates
    from ..models.linear_chain import CRF
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
        it = trainer(
            attribute_strings(train, "chunking"), train.labels_by_sequence(), max_iterations=ITERATIONS
        )
        it.train(model_file())
        return it.logparser.last_iteration["loss"]

    return run


def peak_mb():
    """Largest resident size of this process so far, in MB; 0 where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        return 0.0


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
    print(
        json.dumps(
            {
                "cpu": time.process_time() - cpu,
                "wall": time.perf_counter() - wall,
                "objective": objective,
                "peak_mb": peak_mb(),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])

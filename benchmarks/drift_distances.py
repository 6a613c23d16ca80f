"""Time of the distances between two samples of hidden states: MMD with its permutation test, sliced Wasserstein.

    python -m benchmarks.drift_distances [--states 2000] [--width 256]

The states are random: those of one prompt are alike, and half of the dimensions are shifted. No model runs.
"""

import argparse
import time

import numpy as np

from benchmarks.scripts import table
from evals.drift.distances import PERMUTATIONS, PROJECTIONS, States, centroid_distance, mmd, sliced_wasserstein


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=2000, help="per side")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--per-prompt", type=int, default=8, help="states per prompt")
    args = parser.parse_args(arguments)
    before, after = _samples(args.states, args.width, args.per_prompt)
    rows, seconds = [], {}
    for name, measure in (
        (f"MMD, {PERMUTATIONS} permutations", mmd),
        (f"sliced Wasserstein, {PROJECTIONS} directions", sliced_wasserstein),
        ("centroid distance", centroid_distance),
    ):
        start, cpu = time.perf_counter(), time.process_time()
        distance = measure(before, after)
        seconds[name] = time.perf_counter() - start
        if isinstance(distance, float):
            value = f"{distance:.4f}"
        else:
            value = f"{distance.value:.4f}, p = {distance.p_value:.3f}"
        rows.append([name, value, f"{seconds[name]:.2f}", f"{time.process_time() - cpu:.2f}"])
    rows.append(["together", "", f"{sum(seconds.values()):.2f}", ""])
    print(f"2 × {args.states} states of width {args.width}")
    table(["", "value", "seconds", "CPU seconds"], rows)
    return {"seconds": sum(seconds.values())}


def _samples(states: int, width: int, per_prompt: int) -> tuple[States, States]:
    rng = np.random.default_rng(0)
    prompts = np.arange(states) // per_prompt
    common = rng.normal(size=(prompts[-1] + 1, width))[prompts]
    shift = np.where(np.arange(width) < width // 2, 0.1, 0.0)
    values = [(common + rng.normal(size=(states, width)) + offset).astype(np.float32) for offset in (0.0, shift)]
    return States(values[0], prompts), States(values[1], prompts)


if __name__ == "__main__":
    main()

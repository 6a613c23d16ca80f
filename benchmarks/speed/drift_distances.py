"""How long the distances between two samples of states take: MMD with its permutation test, sliced Wasserstein.

    python -m benchmarks.speed.drift_distances [--states 2000] [--width 256]

States of one prompt are alike, half of the width moves a little; nothing is read or written by a model here.
"""

import argparse
import time

import numpy as np

from benchmarks.common import table
from evals.drift.distances import PERMUTATIONS, PROJECTIONS, States, centroid_distance, mmd, sliced_wasserstein


def main(arguments: list[str] | None = None) -> dict[str, float]:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--states", type=int, default=2000, help="of each side")
    options.add_argument("--width", type=int, default=256)
    options.add_argument("--a-prompt", type=int, default=8, help="states of one prompt")
    asked = options.parse_args(arguments)
    before, after = _sides(asked.states, asked.width, asked.a_prompt)
    rows, seconds = [], {}
    for name, measure in (
        (f"MMD, {PERMUTATIONS} permutations", mmd),
        (f"sliced Wasserstein, {PROJECTIONS} directions", sliced_wasserstein),
        ("centroid distance", centroid_distance),
    ):
        started, cpu = time.perf_counter(), time.process_time()
        found = measure(before, after)
        seconds[name] = time.perf_counter() - started
        value = f"{found.value:.4f}, p = {found.p_value:.3f}" if hasattr(found, "p_value") else f"{found:.4f}"
        rows.append([name, value, f"{seconds[name]:.2f}", f"{time.process_time() - cpu:.2f}"])
    rows.append(["together", "", f"{sum(seconds.values()):.2f}", ""])
    print(f"2 × {asked.states} states of width {asked.width}")
    table(["", "value", "seconds", "CPU seconds"], rows)
    return {"seconds": sum(seconds.values())}


def _sides(states: int, width: int, a_prompt: int) -> tuple[States, States]:
    random = np.random.default_rng(0)
    prompts = np.arange(states) // a_prompt
    common = random.normal(size=(prompts[-1] + 1, width))[prompts]
    moved = np.where(np.arange(width) < width // 2, 0.1, 0.0)
    sides = [(common + random.normal(size=(states, width)) + by).astype(np.float32) for by in (0.0, moved)]
    return States(sides[0], prompts), States(sides[1], prompts)


if __name__ == "__main__":
    main()

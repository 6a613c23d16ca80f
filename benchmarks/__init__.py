"""Speed and memory, as ratios against others' code in one run: `python -m benchmarks.X`; see docs/benchmarks.md."""

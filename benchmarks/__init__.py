"""Benchmarks of quality and of speed, run as `python -m benchmarks.quality.X`; results are in docs/benchmarks.md."""

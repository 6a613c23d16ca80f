"""Benchmarks of speed and memory, run as `python -m benchmarks.NAME`; results are in docs/benchmarks.md."""

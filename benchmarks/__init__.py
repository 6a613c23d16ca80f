"""Benchmarks of speed, memory and precision, run as `python -m benchmarks.NAME`; results are in docs/benchmarks.md."""

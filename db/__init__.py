"""The record: a database of projects, cycles, runs, checkpoints, scores and decisions."""

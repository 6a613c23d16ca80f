"""Experiments: declared ones, which `recover study` runs, and scripts for what no declaration says."""

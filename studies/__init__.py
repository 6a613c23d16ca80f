"""Declared experiments, which `recover study` runs, their results, and the pages made from them."""

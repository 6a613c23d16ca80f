"""The record: what was done to which model, what came of it, and who decided."""

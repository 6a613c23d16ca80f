"""The learning core: everything that turns tokens into a better student."""

"""How the built-in model was made: training it from scratch, and the search of its text for held-out items."""

"""How docs/results.md is made from the records in docs/results."""

"""How docs/results.md and the pages behind it are made from the records in docs/results."""

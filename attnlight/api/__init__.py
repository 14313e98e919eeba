"""What a notebook calls: `run`, `check`, `load` and `explain`."""

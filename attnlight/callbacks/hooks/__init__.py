"""Lightning's plumbing of the tests: records, logging, predictions and the run's folder."""

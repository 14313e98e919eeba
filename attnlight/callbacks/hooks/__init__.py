"""Integration of the tests with Lightning: records, logging, predictions and the run's folder."""

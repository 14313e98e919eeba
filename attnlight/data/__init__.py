"""Readers, tokenisation, batches, samplers and the planted corpus; no Lightning."""

"""Readers, tokenisation, batches, samplers and generated corpora; no Lightning."""

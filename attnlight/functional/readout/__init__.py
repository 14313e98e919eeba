"""Logits from attention: affine and opaque readouts, heads, and the rows of an output."""

"""What asks a model again: with other texts, states, weights or parameters."""

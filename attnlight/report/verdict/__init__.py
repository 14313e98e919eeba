"""The card of a run: its claims, their evidence, and the rules that decide them."""

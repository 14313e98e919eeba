"""The card of a run: its sentence, the lines under it, and the rules that decide."""

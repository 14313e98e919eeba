"""How the groups of a study look, the same in every figure."""

from __future__ import annotations

from attnlight.report.style import INK, PALETTE

TERMS = {"kl": PALETTE[0], "js": PALETTE[5], "tvd": PALETTE[3], "compat": PALETTE[5]}
OTHER_TERM = PALETTE[4]
CONTROL, SEEDS, UNIFORM = INK, PALETTE[2], PALETTE[1]

"""Items that speak against a class, against a plain loop."""

import torch

from attnlight.functional.attribution.log_odds import opposing_items


def test_opposing_items_equal_a_loop() -> None:
    random = torch.Generator().manual_seed(0)
    effects = torch.randn(200, 8, dtype=torch.float64, generator=random) + 0.3
    items = torch.rand(200, 8, generator=random) < 0.7
    effects[torch.rand(200, 8, generator=random) < 0.1] = torch.nan
    found = opposing_items(effects, items)
    for row in range(200):
        known = {
            item: float(effects[row, item])
            for item in range(8)
            if items[row, item] and not effects[row, item].isnan()
        }
        expected = set()
        if known:
            neutral = min(0.0, sorted(known.values())[(len(known) - 1) // 2])
            least = neutral - 0.1 * max(map(abs, known.values()))
            expected = {item for item, effect in known.items() if effect < least}
        assert set(found[row].nonzero().flatten().tolist()) == expected
    assert 0.1 < found[items].double().mean() < 0.5

"""Jain & Wallace's tests on 20 Newsgroups and AG News, beside their published cells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnlight.report.measure_bounds import measure_bounds
from attnlight.statistics import seeds_then_instances
from results_page import pairs
from results_page.archive import Archive
from results_page.predictions import measured
from results_page.tables import DASH, Row, interval, over_seeds

STUDY = "jain_wallace_texts"
MODELS = pairs.conditions(pairs.PLAN.with_stem(STUDY))
_CLASSES = (0, 1)
_ALIKE = ("decoder", "upper bound", "search, published")  # of two classes and an affine decoder


def readings(archive: Archive) -> Iterator[Row]:
    """Accuracy, F1 and every test's reading over all seeds, beside the published cells.

    The search is also given by predicted class, as published.
    """
    names = (name for name, _ in pairs.archived(archive, models=MODELS))
    for name, row in zip(names, pairs.readings(archive, MODELS, "texts"), strict=True):
        published = archive.published["texts"][name.partition("-")[2]]
        shown = {key: value for key, value in row.items() if key not in _ALIKE}
        js = archive[name].test("adversarial_attention")
        by_class = (np.where(js["prediction"] == x, js["search_js"], np.nan) for x in _CLASSES)
        yield shown | {
            "search by predicted class": " / ".join(
                interval(seeds_then_instances(x, bounds=measure_bounds("js"))) for x in by_class
            ),
            "search, published": " / ".join(figure or DASH for figure in published["search"]),
            "F1 of the second class": over_seeds(measured(archive[name], "f1")),
            "published#f1": published["f1"],
        }

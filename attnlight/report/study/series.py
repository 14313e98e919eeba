"""Groups of runs as every figure of a study draws them, and an axis of lambdas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.report.study.estimates import Estimates
from attnlight.report.study.groups import CONTROL, SEEDS, UNIFORM, named, paths, term_name
from attnlight.report.style import INK, PALETTE, PAPER, canvas

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnlight.report.study.frame import Runs

TERMS = {"kl": PALETTE[0], "js": PALETTE[5], "tvd": PALETTE[3], "compat": PALETTE[5]}
LOOKS = {UNIFORM: (PALETTE[1], "^"), SEEDS: (PALETTE[2], "s"), CONTROL: (INK, "D")}
COLLAPSED = "collapsed run"
LAMBDA = "λ, the weight of the divergence in the adversary's loss"
_GAP = 0.16  # between lambda 0 and the least above it, in shares of the way from there to the last
_MOST_NAMED = 3  # powers of ten between the least lambda and the largest


class Series(NamedTuple):
    """Groups of runs that share a colour.

    Attributes:
        estimates: Estimates of the study.
        name: What the legend calls them.
        color: Their colour.
        marker: Their mark.
        groups: The runs of each group, G in all.
        lambdas: Lambda of each group, (G,); empty where it is no path of adversaries.
    """

    estimates: Estimates
    name: str
    color: str
    marker: str
    groups: Sequence[Runs]
    lambdas: Sequence[float] = ()

    def means(self, x: str, y: str) -> NDArray[np.float64]:
        """Mean of two measures, x of which may be `lam`, over the runs of each group, (2, G).

        Collapsed runs are left out; NaN where all of a group are.
        """
        stood = [runs[~runs["collapsed"]] for runs in self.groups]
        across, up = ([self.estimates.of(runs, name).mean for runs in stood] for name in (x, y))
        return np.array([self.lambdas if x == "lam" else across, up], dtype=np.float64)

    def draw(
        self, axes: Axes, x: str, y: str, run: float = 3, mean: float = 5, names: Sequence[str] = ()
    ) -> None:
        """Draw a mark for each run, a cross where it collapsed, and a line through group means.

        Args:
            axes: The axes.
            x: The measure across, or `lam`.
            y: The measure up.
            run: Size of a run's mark; 0 draws none.
            mean: Size of a mean's mark; 0 draws none.
            names: What a legend calls runs and means; by default the larger ones have this name.
        """
        import pandas as pd

        names = names or (("", self.name) if mean else (self.name, ""))
        whole = pd.concat(list(self.groups))
        common: dict[str, Any] = {"marker": self.marker, "color": self.color}
        standing = common | {"ms": run, "mew": 0, "alpha": 0.6, "zorder": 5, "label": names[0]}
        fallen = {"marker": "X", "ms": 5.5, "mfc": PAPER, "mec": self.color, "mew": 1.1}
        fallen |= {"zorder": 7, "label": COLLAPSED}
        for collapsed, look in ((False, standing), (True, fallen)):
            runs = whole[whole["collapsed"] == collapsed]
            if run and len(runs):
                across = runs["lam"] if x == "lam" else self.estimates.per_seed(runs, x)
                axes.plot(across, self.estimates.per_seed(runs, y), ls="", **look)
        if mean:
            look = common | {"ms": mean, "mec": "white", "mew": 0.8, "zorder": 6, "label": names[1]}
            look |= {"lw": 1.4, "ls": "-" if len(self.groups) > 1 else ""}
            axes.plot(*self.means(x, y), **look)

    def draw_band(self, axes: Axes, measure: str, across: bool = False) -> None:
        """The mean as a line in its 95 % interval; across: measured on the x axis."""
        band, line = (axes.axvspan, axes.axvline) if across else (axes.axhspan, axes.axhline)
        found = self.estimates.of(self.groups[0], measure)
        if not np.isnan(found.mean):
            band(found.low, found.high, color=self.color, alpha=0.16, lw=0, zorder=1)
            line(found.mean, color=self.color, label=self.name, lw=1.1, ls=(0, (4, 2)), zorder=2)


def of_base(estimates: Estimates, base: str) -> dict[str, Series]:
    """What was trained from a base and is finished: adversaries by term, and groups by name."""
    found, plain = {}, named(estimates.study, base)
    for term, path in paths(estimates.study, base).items():
        name, color = f"adversary, {term_name(term)}", TERMS.get(term, PALETTE[4])
        found[term] = Series(estimates, name, color, "o", list(path.values()), list(path))
    for name, look in LOOKS.items():
        if len(plain[name]):
            found[name] = Series(estimates, name, *look, [plain[name]])
    return found


@contextmanager
def panels(
    height: float,
    rows: int,
    columns: int = 1,
    names: int = 3,
    **shared: Any,  # noqa: ANN401
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Panels of one figure, with lines behind what is drawn and its labels above, each once.

    Args:
        height: Height of the figure in inches.
        rows: Rows of panels.
        columns: Columns of panels.
        names: Columns of the legend, in which collapsed runs are last.
        shared: What else `Figure.subplots` takes.
    """
    with canvas(height) as figure:
        every = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
        for axes in every:
            axes.margins(y=0.08)
            axes.grid()
            axes.set_axisbelow(True)
        yield figure, every
        labelled: dict[str, Artist] = {}
        for axes in every:
            for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
                labelled.setdefault(name, handle)
        if COLLAPSED in labelled:
            labelled[COLLAPSED] = labelled.pop(COLLAPSED)
        if labelled:
            figure.legend(labelled.values(), labelled, loc="outside upper left", ncols=names)


def lambda_axis(axes: Axes, lambdas: Sequence[float], named: bool = True) -> None:
    """Lambdas on a logarithmic axis, with a place for 0 to the left of the least.

    One at least is above 0. Named below the axis are the ends and some powers of ten between them.
    """
    above = [lam for lam in lambdas if lam > 0]
    low, high = min(above), max(above)
    gap = _GAP * max(np.log10(high / low), 1.0)
    axes.set_xscale("symlog", linthresh=low, linscale=gap)
    axes.set_xlim(-0.4 * low, high * 10 ** (0.4 * gap))
    powers = np.arange(np.ceil(np.log10(2 * low)), np.floor(np.log10(high / 2)) + 1)
    between = (10.0 ** powers[:: max(1, -(-len(powers) // _MOST_NAMED))]).tolist()
    ticks = sorted({0.0, low, *between, high})
    axes.set_xticks(ticks, [f"{lam:g}" if named else "" for lam in ticks])
    axes.minorticks_off()

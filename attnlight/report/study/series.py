"""How the figures of a study draw groups of runs, and the axis of lambdas."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlight.figures.style import INK, PALETTE, PAPER, canvas
from attnlight.report.study import groups
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.frame import Runs
from attnlight.report.study.groups import CONTROL, SEEDS, UNIFORM

TERMS = {"kl": PALETTE[0], "js": PALETTE[5], "tvd": PALETTE[3], "released": PALETTE[5]}
STYLES = {UNIFORM: (PALETTE[1], "^"), SEEDS: (PALETTE[2], "s"), CONTROL: (INK, "D")}
COLLAPSED = "collapsed run"
LAMBDA = "λ, the weight of the divergence in the adversary's loss"
_GAP = 0.16  # from lambda 0 to the smallest positive one, as a share of the axis beyond that
_MAX_TICKS = 3  # powers of ten between the smallest positive lambda and the largest


class Series(NamedTuple):
    """Groups of runs that share a colour."""

    estimates: Estimates  # estimates of the study
    name: str  # their name in the legend
    color: str  # their colour
    marker: str  # their marker
    groups: Sequence[Runs]  # the runs of each group, G in all
    # Lambda of each group, (G,); empty unless the groups are adversaries by lambda.
    lambdas: Sequence[float] = ()

    def means(self, x: str, y: str) -> NDArray[np.float64]:
        """Mean of two measures over the runs of each group, (2, G); `x` may be `lam`.

        Collapsed runs are left out; NaN if all runs of a group collapsed.
        """
        intact = [runs[~runs["collapsed"]] for runs in self.groups]
        mean = self.estimates.estimate
        across, up = ([mean(runs, name).mean for runs in intact] for name in (x, y))
        return np.array([self.lambdas if x == "lam" else across, up], dtype=np.float64)

    def draw(
        self, axes: Axes, x: str, y: str, run: float = 3, mean: float = 5, names: Sequence[str] = ()
    ) -> None:
        """Draw a marker for each run, a cross if it collapsed, and a line through group means.

        `x` may be `lam`. `run` and `mean` are the sizes of markers; 0 draws none. `names` are the
        labels of runs and means; by default the larger markers have the series' name.
        """
        names = names or (("", self.name) if mean else (self.name, ""))
        all_runs = pd.concat(list(self.groups))
        common: dict[str, Any] = {"marker": self.marker, "color": self.color}
        run_style = common | {"ms": run, "mew": 0, "alpha": 0.6, "zorder": 5, "label": names[0]}
        collapsed_style = {"marker": "X", "ms": 5.5, "mfc": PAPER, "mec": self.color, "mew": 1.1}
        collapsed_style |= {"zorder": 7, "label": COLLAPSED}
        for collapsed, style in ((False, run_style), (True, collapsed_style)):
            runs = all_runs[all_runs["collapsed"] == collapsed]
            if run and len(runs):
                across = runs["lam"] if x == "lam" else self.estimates.per_seed(runs, x)
                axes.plot(across, self.estimates.per_seed(runs, y), ls="", **style)
        if mean:
            style = common | {"ms": mean, "mec": "white", "mew": 0.8, "label": names[1]}
            style |= {"zorder": 6, "lw": 1.4, "ls": "-" if len(self.groups) > 1 else ""}
            axes.plot(*self.means(x, y), **style)

    def draw_band(self, axes: Axes, measure: str, across: bool = False) -> None:
        """Draw the mean as a line in its 95 % interval; `across`: along the x axis."""
        band, line = (axes.axvspan, axes.axvline) if across else (axes.axhspan, axes.axhline)
        mean = self.estimates.estimate(self.groups[0], measure)
        if not np.isnan(mean.low):
            band(mean.low, mean.high, color=self.color, alpha=0.16, lw=0, zorder=1)
        if not np.isnan(mean.mean):
            line(mean.mean, color=self.color, label=self.name, lw=1.1, ls=(0, (4, 2)), zorder=2)


def series_of_base(estimates: Estimates, base: str) -> dict[str, Series]:
    """Finished models trained from a base: adversaries by term, and other groups by name."""
    by_name, plain = {}, groups.named_groups(estimates.study, base)
    for term, path in groups.lambda_paths(estimates.study, base).items():
        name, color = f"adversary, {groups.term_name(term)}", TERMS.get(term, PALETTE[4])
        by_name[term] = Series(estimates, name, color, "o", list(path.values()), list(path))
    for name, style in STYLES.items():
        if len(plain[name]):
            by_name[name] = Series(estimates, name, *style, [plain[name]])
    return by_name


@contextmanager
def panels(
    height: float,
    rows: int,
    columns: int = 1,
    names: int = 3,
    **shared: Any,  # noqa: ANN401
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Panels of one figure, with grid lines and one legend for all of them.

    The height is in inches; the legend has `names` columns, in which collapsed runs come last;
    `shared` are further arguments of `Figure.subplots`.
    """
    with canvas(height) as figure:
        all_axes = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
        for axes in all_axes:
            axes.margins(y=0.08)
            axes.grid()
            axes.set_axisbelow(True)
        yield figure, all_axes
        labelled: dict[str, Artist] = {}
        for axes in all_axes:
            for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
                labelled.setdefault(name, handle)
        if COLLAPSED in labelled:
            labelled[COLLAPSED] = labelled.pop(COLLAPSED)
        if labelled:
            figure.legend(labelled.values(), labelled, loc="outside upper left", ncols=names)


def lambda_axis(axes: Axes, lambdas: Sequence[float], named: bool = True) -> None:
    """Set a logarithmic axis of lambdas, at least one of them positive, with a place for 0.

    Ticks are the ends and some powers of ten between them.
    """
    above = [lam for lam in lambdas if lam > 0]
    low, high = min(above), max(above)
    gap = _GAP * max(np.log10(high / low), 1.0)
    axes.set_xscale("symlog", linthresh=low, linscale=gap)
    axes.set_xlim(-0.4 * low, high * 10 ** (0.4 * gap))
    powers = np.arange(np.ceil(np.log10(2 * low)), np.floor(np.log10(high / 2)) + 1)
    between = (10.0 ** powers[:: max(1, -(-len(powers) // _MAX_TICKS))]).tolist()
    ticks = sorted({0.0, low, *between, high})
    axes.set_xticks(ticks, [f"{lam:g}" if named else "" for lam in ticks])
    axes.minorticks_off()

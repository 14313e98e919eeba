"""What the page finds in the tables of single models, in sentences that its tables bear out."""

from __future__ import annotations

from results_page.cells import Cell, Tables, read_cell
from results_page.prose import claim, paragraph


def findings(tables: Tables) -> dict[str, str]:
    """The sentences of each place, from the tables of single models."""
    return {
        "epochs_finding": epochs(tables),
        "arms_finding": arms(tables),
        "scaled_dot_finding": scaled_dot(tables),
        "serrano_finding": serrano(tables),
        "planted_finding": planted(tables),
    }


def epochs(tables: Tables) -> str:
    """What the last epoch changes beside the chosen one."""
    whole = [row for row in tables.rows("epochs") if row["corpus"] != "SST, with phrases"]

    def rises(measure: str, last: str) -> bool:
        return all(float(row[f"{measure}, chosen"]) < float(row[last]) for row in whole)

    falls = all(float(row["AUROC, chosen"]) > float(row["last 2"]) for row in whole)
    return paragraph(
        claim(
            falls and rises("maximum attention", "last 3") and rises("median TVD", "last 4"),
            "The epoch matters. In every run on SST sentences and on IMDb the last epoch has the "
            "lower AUROC and the more peaked attention, and shuffling moves its predictions further "
            "than those of the epoch chosen.",
        ),
        "Means over the validation split, at the epoch chosen and at the last one before training "
        "stopped:",
    )


def arms(tables: Tables) -> str:
    """Whether the average encoder's attention agrees more with importance than the BiLSTM's."""
    rows = tables.rows("arms")
    agree = [row for row in rows if row["tau between"].startswith("attention, ")]
    itself = [
        read_cell(row["BiLSTM"])
        for row in rows
        if row["tau between"].startswith("attention with i")
    ]
    random, trained = (read_cell(row["BiLSTM"]) for row in agree[::2])
    return paragraph(
        claim(
            all(read_cell(row["difference"]).above for row in agree),
            "In both arms attention agrees more with either importance under the average encoder "
            "than under the BiLSTM, as published.",
        ),
        claim(
            itself[0].open and itself[1].beyond(itself[0]) and not trained.beyond(random),
            f"With random vectors the BiLSTM's attention is not shown to agree with itself "
            f"({itself[0]}), so that such a low tau may reflect seed noise as much as a failure of "
            f"attention as explanation. From trained vectors its attention does agree with itself "
            f"({itself[1]}), and its tau with the gradient is not shown to be higher ({trained} "
            f"against {random}).",
        ),
    )


def scaled_dot(tables: Tables) -> str:
    """Why the average encoder's scaled dot has another sign than the published."""
    model = "average, scaled dot"
    row = tables.row("tau", "SST", "average", "scaled dot")
    found, theirs = read_cell(row["tau with gradient"]), row["published"]
    small, large = (tables.row("scale", model, scale) for scale in ("0.1", "0.3"))
    other = read_cell(large["tau, attention, gradient"])
    own, wide = (
        [float(cell.split()[0]) for cell in list(row.values())[3:] if cell]
        for row in tables.rows("tau_epochs")
        if row["encoder"] == model and row["attention with"] == "input gradient"
    )
    return paragraph(
        claim(
            found.below and float(theirs) > 0,
            f"The average encoder's scaled dot has another sign than the published: {found} against "
            f"{theirs}, of SST.",
        ),
        claim(
            own[0] < 0 < own[-1] and own == sorted(own) and small["epochs chosen"] == "1 / 1",
            "The first epoch is one cause. Accuracy chooses it in both runs; Jain & Wallace's code "
            f"never keeps it. On validation tau with the gradient rises in every epoch, from "
            f"{own[0]:.2f} after the first to {own[-1]:.2f} after the {len(own)}th.",
        ),
        claim(
            other.above and all(more > less for more, less in zip(wide, own, strict=False)),
            f"The initial scale of the vectors is another: with a standard deviation of 0.3 instead of "
            f"0.1 tau at the epoch chosen ({large['epochs chosen']}) is {other}, and it is higher in "
            f"every epoch, {wide[0]:.2f} after the first and {wide[-1]:.2f} after the last. Theirs were "
            "fastText vectors.",
        ),
    )


def serrano(tables: Tables) -> str:
    """What holds of Serrano & Smith's claims, by the counts of their table."""
    rows = tables.rows("serrano_claims")

    def count(start: str, never: str = "") -> tuple[str, int, int]:
        (row,) = (
            row
            for row in rows
            if row["claim"].startswith(start) and never in row["texts that never flip"]
        )
        return row["in the paper"], int(row["holds"]), int(row["cases"])

    def of(start: str, never: str = "") -> str:
        _, holds, cases = count(start, never)
        return f"{holds} of {cases}"

    def fewer(start: str) -> bool:
        """Whether a claim holds in a smaller share of our models than of theirs."""
        theirs, holds, cases = count(start)
        their, of_their = map(int, theirs.split(" of "))
        return holds / cases < their / of_their

    sooner, half = "with an encoder the gradient flips", "with an encoder the gradient finds"
    gradient, product = "first items of gradient flip", "first items of gradient × attention"  # noqa: RUF001
    par, mass = "without an encoder", "the attention removed by gradient is"
    faster = [
        row
        for row in tables.rows("serrano_sooner")
        if row["model"].endswith("noenc") and float(read_cell(row["ratio"]).ends[0]) > 1
    ]
    every = [row for row in tables.rows("serrano_sooner") if row["model"].endswith("noenc")]
    shifted = {
        row["corpus"]
        for row in tables.rows("serrano_lighter")
        if "holds" in row["claim"] or "holds" in row["claim 2"]
    }
    return paragraph(
        claim(
            count(sooner)[1] >= count(sooner)[2] - 1,
            f"With an encoder the gradient needs fewer removals than attention, by the published "
            f"factor of 1.6 or more in {of(sooner)} models.",
        ),
        claim(
            fewer(half),
            f"It finds the smaller set for over half of the texts in {of(half)}, which is less often "
            f"than published ({count(half)[0]}): in many texts both need as many.",
        ),
        claim(
            count(product)[1] == count(product)[2],
            "The product of gradient and attention picks first items that flip more decisions than "
            "attention's in every model, as published.",
        ),
        claim(
            fewer(gradient),
            f"The gradient's first item flips fewer decisions than attention's in {of(gradient)} "
            f"models (published: {count(gradient)[0]}), so that here it is more often the better one.",
        ),
        claim(
            count(par, "out")[1] == count(par, "out")[2] and len(faster) == len(every),
            "Without an encoder the box plots are on par in all models, as published; text by text, "
            "however, the gradient is the sooner one more often than attention in all of them.",
        ),
        claim(
            shifted <= {"Yelp"},
            f"A shift of 0.25 or more of the attention removed is a figure of Yelp alone (gradient: "
            f"{of(mass, 'out')} models with texts that never flip left out, {of(mass, 'as 1')} with "
            "them counted as 1).",
        ),
    )


def planted(tables: Tables) -> str:
    """Whether attention finds planted evidence."""

    def found(
        model: str, texts: str, evidence: str = "for or against the label"
    ) -> tuple[Cell, float]:
        row = tables.row("evidence", model, evidence, texts)
        return read_cell(row["AUPRC of the model's attention"]), float(
            row["AUPRC of uniform attention"]
        )

    def right(model: str, texts: str) -> float:
        return tables.cell("planted", texts, model).value

    none, bilstm, negation = (
        "planted, no encoder",
        "planted, BiLSTM",
        "planted with negation, BiLSTM",
    )
    first, second = found(none, "all")[0], found(bilstm, "all")[0]
    negated = [
        found(negation, "negated", kind) for kind in ("for or against the label", "for the label")
    ]
    return paragraph(
        claim(
            first.value > 0.99 and first.beyond(second) and right(bilstm, "all") > 0.99,
            f"Without an encoder and without negation attention ranks the keywords first (AUPRC "
            f"{first}). The BiLSTM's states carry what is around them, and its attention ranks them "
            f"lower ({second}) although it classifies as well (accuracy {right(bilstm, 'all'):.3f}).",
        ),
        claim(
            right(negation, "negated") > 0.95
            and all(cell.value <= uniform + 0.005 for cell, uniform in negated),
            f"With negation it is right on {right(negation, 'negated'):.3f} of the negated texts, yet "
            "on them its attention finds the evidence no better than uniform attention does "
            f"({negated[0][0]} against {negated[0][1]:.3f}).",
        ),
    )

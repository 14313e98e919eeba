"""Which sentences of `findings.md` the tables support: pairs of texts, methods, deceptive attention."""

from __future__ import annotations

from results_page import NAMES
from results_page.findings import Cell, Cells, Places, Sentences, Tables
from results_page.sentences import Rows, grouped, near
from results_page.tables import BINS, DASH, Row

# Words of each reading where it goes with attention on the facts, and whether it is high there.
READINGS: dict[str, tuple[str, bool]] = NAMES["sentences_methods"]["readings"]


def archived_runs(t: Tables) -> Sentences:
    """Jain & Wallace's readings on texts, and how many runs there are."""
    c = Cells(t, "texts_findings")
    tau = ("tau attention-gradient", "tau attention-LOO", "tau gradient-LOO")
    most = {"accuracy": 0.02} | dict.fromkeys(tau, 0.1)
    for place, (measure, limit) in enumerate(most.items(), start=1):
        theirs = "published" if place == 1 else f"published {place}"
        known = [row for row in t.rows("texts") if row.get(theirs, DASH) != DASH]
        if known:
            found = near(known, measure, theirs, limit)
            yield c.say("near", measure=measure, most=limit, near=found, known=len(known))
    for kind in ("pairs", "saliency"):
        c = Cells(t, f"{kind}_open_finding")
        empty, rows = sum(x.value == 0 for x in c["seeds"]), len(c["seeds"])
        without = f"; {empty} of the {rows} conditions have none yet" if empty else ""
        archived, planned = (sum(x.counts[place] for x in c["seeds"]) for place in (0, 1))
        yield c.say("archived", archived=archived, planned=planned, without=without)


def pairs(t: Tables) -> Sentences:
    """Questions and inference."""
    c = Cells(t, "pairs_findings")
    least = min(c["right"], key=lambda cell: cell.value)
    yield c.say("right", least.value >= 0.99, least=least.number, count=len(c["right"]))
    for encoder in ("CNN", "average"):
        rows = [row for row in t.rows("pairs", encoder) if row["corpus"].startswith("bAbI 1")]
        each = [
            f"{abs(Cell(row['accuracy']).value - float(row['published'])):.3f} with "
            f"{row['attention']} attention{row['corpus'].removeprefix('bAbI 1')}"
            for row in rows
        ]
        found = near(rows, "accuracy", "published", 0.03)
        fields = {"encoder": encoder, "near": found, "count": len(rows)}
        yield c.say("accuracy", each="; by ".join(each), **fields)
    yield c.say("second", published=t.rows("pairs", "bAbI 2", "additive")[0]["published"])
    *sizes, whole = t.rows("snli_size")
    each = [
        f"{Cell(row['accuracy']).number} from {row['training pairs']} training pairs"
        for row in sizes
    ]
    yield c.say("sizes", each=", ".join(each), whole=whole["accuracy"])
    known = t.rows("pairs", "tanh")
    gradient = near(known, "tau attention-gradient", "published 2", 0.1)
    loo = near(known, "tau attention-LOO", "published 3", 0.1)
    yield c.say("near", known=len(known), gradient=gradient, loo=loo)
    rows = t.rows("pairs_shuffled", "SNLI")
    theirs = sorted((row[name] for row in rows for name in BINS), key=float)
    fields = {"least": theirs[0], "most": theirs[-1], "published": rows[0]["published accuracy"]}
    yield c.say("shuffled", c.ours.high < float(theirs[0]), **fields)
    missed = sorted(c["missed"], key=lambda cell: cell.value)
    fields = {"above": sum(x.above for x in missed), "count": len(missed)}
    yield c.say("search", least=missed[0].number, most=missed[-1].number, **fields)
    rows = t.rows("pairs_evidence", "all")
    above = sum(Cell(row["mass"]).low > float(row["chance"]) for row in rows)
    proven = sorted((Cell(row["share proven"]) for row in rows), key=lambda cell: cell.value)
    fields = {"least": proven[0].number, "most": proven[-1].number}
    yield c.say("mass", above=above, count=len(rows), **fields)
    top = min(x.value for x in c["top"])
    yield c.say("top", top >= 0.95, top=top)
    yield from _reasons(t, c)


def _reasons(t: Tables, c: Cells) -> Sentences:
    """Whether readings go with attention on the facts."""
    always, most = [], 0.0
    for reading, (words, high) in READINGS.items():
        plain, fixed = (
            [x for x in t.figures("pairs_reasons", reading, held) if x.number != "nan"]
            for held in ("nothing", "chance")
        )
        counts = [(sum(x.above for x in of), sum(x.below for x in of)) for of in (fixed, plain)]
        goes = [count if high else count[::-1] for count in counts]
        values = [x.value for x in fixed]
        most = max(most, *map(abs, values))
        always += [words] if goes[0][0] == len(fixed) else []
        ends = f"correlations from {min(values):.2f} to" if len(values) > 1 else "correlation"
        fields: Row = {"count": len(fixed), "s": "s" if len(fixed) > 1 else ""}
        fields["correlations"] = f"{ends} {max(values):.2f}"
        fields["Words"] = words[0].upper() + words[1:]
        yield c.say("goes", fixed=goes[0], plain=goes[1], **fields)
    verb = "go" if len(always) > 1 else "goes"
    yield c.say("always", readings=f"{' and '.join(always) or 'no reading'} {verb}", most=most)
    for row in (x for x in t.rows("pairs_reasons") if x["encoder"].startswith("over ")):
        found = {name: text.partition(" (p = ") for name, text in row.items() if " (p = " in text}
        shown = [f"{x} ({tau})" for x, (tau, _, p) in found.items() if float(p[:-1]) <= 0.05]
        words = "is not shown to be correlated with the mean of any reading (p above 0.05)"
        if shown:
            words = f"is correlated at p of at most 0.05 with the mean of {', '.join(shown)}, "
            words += "without correction for the number of readings"
        models = row["encoder"].replace("over ", "Over ")
        yield c.say("over", Models=models, corpus=row["corpus"], is_correlated=words)


def saliency(t: Tables) -> Sentences:
    """Attribution methods compared."""
    c = Cells(t, "saliency_findings")
    for models in grouped(t.rows("saliency_faithfulness"), "corpus", "encoder"):
        words = {column: models[0][column] for column in ("corpus", "encoder", "seeds")}
        first, second = _best(models, "comprehensiveness", "p"), _best(models, "sufficiency", "p 2")
        yield c.say("faithful", first=first, second=second, **words)
    for row in t.rows("saliency_right", "all"):
        columns = ("Kendall's tau", "Spearman", "AUPRC lost")
        tau, rho, lost = (Cell(row[column]) for column in columns)
        enough = Cell(row["encoder"]).value >= 3 and int(row["runs"]) >= 9
        goes = "goes with" if tau.above and rho.above else "is not shown to go with"
        goes = "goes against" if tau.below and rho.below else goes
        answer = "Yes" if goes == "goes with" else "No"
        answer = answer if enough else "Not shown before there are three encoders and nine runs"
        fields = {"answer": answer, "goes": goes, "tau": tau, "rho": rho, "lost": lost}
        yield c.say("right", **{**row, **fields})
    yield from _plausible(t, c)
    names = ("tau of erasure and deletion", "hidden token attribution", "chance")
    each = [
        "{}, {}: {} and {} (chance {})".format(
            row["corpus"], row["encoder"], *(Cell(row[name]).number for name in names)
        )
        for row in t.rows("saliency_states")
    ]
    yield c.say("states", each="; ".join(each))
    costs = t.rows("saliency_cost")
    for name in [*costs[0]][1:]:
        each = [f"{row['method']} {Cell(row[name]).number}" for row in costs]
        yield c.say("cost", model=name.partition(";")[0], each=", ".join(each))
    rows = [row for row in t.rows("saliency_complete") if row["corpus"] in ("SST", "AG News")]
    for row in sorted(rows, key=lambda row: row["corpus"] == "AG News"):
        yield c.say("complete", share=Cell(row["complete"]), **row)
    for models in grouped(t.rows("saliency_sanity"), "corpus", "encoder"):
        verdicts = [
            f"{rows[0]['verdict']}: {', '.join(dict.fromkeys(row['method'] for row in rows))}"
            for rows in grouped(models, "verdict")
        ]
        yield c.say("sanity", each="; ".join(verdicts), **models[0])


def _best(models: Rows, measure: str, p: str) -> dict[str, object]:
    """The most faithful method of a model, beside attention and those not told apart from it."""
    best = next(row for row in models if row[p] == "best")
    attention = next(row for row in models if row["method"] == "attention")
    value = Cell(best[measure])
    close = [
        row["method"]
        for row in models
        if row is not best
        and (Cell(row[p]).value > 0.05 or abs(Cell(row[measure]).value - value.value) < 0.01)
    ]
    words = f"not told apart from it or within 0.01: {', '.join(close)}"
    words = words if close else "ahead of all others"
    fields = {"method": best["method"], "value": value, "near": words}
    return fields | {"attention": Cell(attention[measure])}


def _plausible(t: Tables, c: Cells) -> Sentences:
    """Which method agrees best with what people marked."""
    for models in grouped(t.rows("saliency_plausibility"), "corpus", "encoder"):
        by_name = {row["explanation"]: row for row in models}
        areas = {name: Cell(row["AUPRC"]) for name, row in by_name.items()}
        methods = [name for name in areas if name not in ("chance", "another person", "random")]
        best = max(methods, key=lambda name: areas[name].value)
        people = areas.get("another person")
        less = Cell(by_name[best]["AUPRC less attention's"])
        shown = "more" if less.above else "not shown to be more"
        other = best != "attention"
        yield c.say(
            "plausible",
            corpus=models[0]["corpus"],
            encoder=models[0]["encoder"],
            best=best,
            auprc=areas[best],
            chance=areas["chance"],
            people=f", another person {people}" if people else "",
            attention=f" attention {areas['attention']}," if other else "",
            less=f" It is {shown} plausible than attention (difference {less})." if other else "",
        )


def pruthi(t: Tables) -> Sentences:
    """Cells of Pruthi et al. that are missed, and why."""
    c = Cells(t, "pruthi_findings")
    masses, accuracies = (t.rows("pruthi_reasons", x) for x in ("mass", "accuracy"))
    each = [
        f"{row['corpus']}, {row['model']}, {row['lowest and highest seed']} (published "
        f"{row['published']}; {row['ours']} in ours)"
        for row in masses
    ]
    holds = all(row["within the seeds"] == "yes" for row in masses)
    yield c.say("explained", holds, each="; ".join(each))
    yield c.say("start", c.now.value > c.before.value + 0.2)
    each = [
        f"{row['model']}, {row['lowest and highest seed']} (published {row['published']})"
        for row in accuracies
    ]
    lowest = min(Cell(row["lowest and highest seed"]).value for row in accuracies)
    holds = lowest > max(float(row["published"]) for row in accuracies)
    yield c.say("unexplained", holds, each="; ".join(each))


PLACES: Places = (
    archived_runs,
    pairs,
    saliency,
    pruthi,
)

"""Which sentences of `findings.md` the tables support, and the figures in them: papers, pairs, reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from results_page.findings import Cell, Cells, Places, Sentences, Tables
from results_page.tables import DASH

Rows = list[dict[str, str]]
_IMDB = "IMDb, 7 to 399 words"


def grouped(rows: Rows, *columns: str) -> Iterator[Rows]:
    """The rows by the values of columns, in the order of the alphabet."""
    groups: dict[tuple[str, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[column].lower() for column in columns), []).append(row)
    return (groups[key] for key in sorted(groups))


def near(rows: Iterable[Mapping[str, str]], ours: str, theirs: str, most: float) -> int:
    """In how many rows the numbers of two columns differ by at most so much."""
    return sum(abs(Cell(row[ours]).value - Cell(row[theirs]).value) <= most for row in rows)


def answers(t: Tables) -> Sentences:
    """The six answers of the front page."""
    c = Cells(t, "answers")
    yield c.say("agree", c.both.low > max(c.low.high, c.loo.high) and c.high.low > c.low.high)
    random, vectors = c["itself"]
    holds = random.open and vectors.above and not c["gradient"][-1].low > c.low.high
    yield c.say("seeds", holds)
    published = sorted({row["Jain & Wallace"] for row in t.rows("bins", _IMDB)} - {DASH})
    holds = c.sst.high < 0.05 and c.imdb.range[1] < min(0.1, c.planted.low) and c.babi.low > 0.6
    yield c.say("shuffled", holds, published=(published[0], published[-1]))
    values = [100 * x.value for x in c["shares"]]
    holds = min(x.range[0] for x in c["shares"]) > 0.8
    yield c.say("replaced", holds, least=min(values), most=max(values))
    holds = c.uniform_imdb.below and c.uniform_sst.open and c.uniform_news.open
    yield c.say("needed", holds and c.chunks.below and c.chunks.high < c.uniform_imdb.low)
    yield c.say("another", c.beyond.above and c.price.open)
    holds = c.mass.value < 0.0001 and c.hidden.low > 0.99 and c.without.high < 0.8
    yield c.say("hidden", holds)
    holds = c.seeds.low > random.high and not c.seeds.low > vectors.high and c.chunks.below
    yield c.say("tagging", holds)
    yield c.say("exclusive", all(x.open for x in c["settings"]), count=len(c["settings"]))
    holds = c.alone.value > 0.99 and c.mixed.high < 0.5 and c.right.value > 0.99
    yield c.say("conclude", holds)
    (claim,) = t.rows("claims_saliency", "Integrated…")
    count = claim["here"].partition(" (")[0]
    yield c.say("faithful", claim["outcome"] == "agrees" and c.faithful.above, count=count)
    yield c.say("card")


def cards_and_planted(t: Tables) -> Sentences:
    """The cards beside the methods, and attention against planted evidence."""
    c = Cells(t, "cards_finding")
    (claim,) = t.rows("claims_saliency", "Integrated…")
    holds = claim["outcome"] == "agrees" and max(c.bilstm.high, c.cnn.high) < 0.5
    holds = holds and min(c.none.low, c.planted.low) > 0.7
    holds = holds and max(c.takes_none.high, c.takes_planted.high) < 1
    yield c.say("cards", holds, count=claim["here"].partition(" (")[0])
    c = Cells(t, "planted_finding")
    holds = c.first.value > 0.99 and c.first.low > c.second.high and c.right.value > 0.99
    yield c.say("first", holds)
    both = zip(c["auprc"], c["uniform"], strict=True)
    yield c.say(
        "negation", all(x.value <= y.value + 0.005 for x, y in both) and c.negated.value > 0.95
    )


def jain_wallace(t: Tables) -> Sentences:
    """Jain & Wallace's readings by epoch, encoder, vectors and scale."""
    c = Cells(t, "epochs_finding")
    lower = {"last 2": "AUROC, chosen", "maximum attention, chosen": "last 3"}
    lower["median TVD, chosen"] = "last 4"
    rows = [row for row in t.rows("epochs") if row["corpus"] != "SST, with phrases"]
    yield c.say(
        "matters", all(float(row[x]) < float(row[y]) for row in rows for x, y in lower.items())
    )
    yield c.say("means")
    c = Cells(t, "arms_finding")
    rows = [row for row in t.rows("arms") if row["tau between"].startswith("attention, ")]
    yield c.say("more", all(Cell(row["difference"]).above for row in rows))
    (random, vectors), (before, trained) = c["itself"], c["gradient"]
    yield c.say("seeds", random.open and vectors.above and not trained.low > before.high)
    c = Cells(t, "scaled_dot_finding")
    model = "average, scaled dot"
    yield c.say("below", c.tau.range[1] < c.published.value)
    narrow, wide = (
        [Cell(text).value for text in [*row.values()][3:] if text]
        for row in t.rows("tau_epochs", model, "input gradient")
    )
    small, large = (t.rows("scale", model, x)[0]["epochs chosen"] for x in ("0.1", "0.3"))
    holds = (
        narrow[0] < 0 < narrow[-1]
        and narrow == sorted(narrow)
        and {*small.split(" / ")} == {"1", "2"}
    )
    ends = {"first": narrow[0], "last": narrow[-1]}
    yield c.say("epoch", holds, chosen=small, count=len(narrow), **ends)
    holds = c.wide.above and all(a < b for a, b in zip(narrow, wide, strict=False))
    yield c.say("scale", holds, chosen=large, first=wide[0], last=wide[-1])


def serrano(t: Tables) -> Sentences:
    """The claims of Serrano & Smith."""
    c = Cells(t, "serrano_finding")
    starts = {
        "ratio": "with an encoder the gradient flips…",
        "half": "with an encoder the gradient finds…",
        "product": "first items of gradient ×…",  # noqa: RUF001
        "first": "first items of gradient flip…",
        "par": "without an encoder…",
        "out": "the attention removed by gradient is…",
    }
    found = {key: t.rows("serrano_claims", start)[0] for key, start in starts.items()}
    for key in ("ratio", "half", "product", "first"):
        row = found[key]
        holds, cases = int(row["holds"]), int(row["cases"])
        stated, of = Cell(row["in the paper"]).counts
        supported = holds * of < stated * cases
        if key in ("ratio", "product"):
            supported = holds >= cases - (key == "ratio")
        yield c.say(key, supported, **row)
    bare = [row for row in t.rows("serrano_sooner") if row["model"].endswith("noenc")]
    par, out = found["par"], found["out"]
    near = Cell(par["holds"]).value >= Cell(par["cases"]).value - 1
    yield c.say("par", near and min(Cell(x["ratio"]).low for x in bare) > 1, **par)
    yelp = sum(
        x["claim"].startswith("holds") for x in t.rows("serrano_lighter", "Yelp", "left out")
    )
    (one,) = t.rows("serrano_claims", out["claim"], "as 1")
    yield c.say("lighter", Cell(out["holds"]).value <= yelp + 1, out=out, one=one, yelp=yelp)


def reasons(t: Tables) -> Sentences:
    """What was tested of the differences from the papers' claims."""
    c = Cells(t, "reasons")
    yield c.say("other_seeds", c.itself.low < c.gradient.low)
    yield c.say("scale")
    found = (row["Jain & Wallace"] for row in t.rows("bins", _IMDB))
    medians = [float(x) for x in found if x != DASH]
    yield c.say("medians", above=sum(x > 0.1 for x in medians), count=len(medians))
    yield c.say("search")
    rows = t.rows("serrano_sooner")
    same = sorted(Cell(r["as soon"]).value for r in rows if r["claim: over half"] != DASH)
    yield c.say("ties", least=same[0], most=same[-1])
    bare = [Cell(row["ratio"]) for row in rows if row["model"].endswith("noenc")]
    yield c.say("wide", sooner=sum(x.low > 1 for x in bare), count=len(bare))
    yelp = [row["claim"] for row in t.rows("serrano_lighter", "Yelp", "left out")]
    yield c.say("corpus", holds=yelp.count("holds"), count=len(yelp))
    yield c.say("not_vectors", c.vectors.open)
    yield c.say("almost_uniform", c.uniform.value < 0.005)
    yield c.say("which_base")
    yield c.say("not_seeds", c.beyond.above)
    yield c.say("imitation")
    yield c.say("pos", c.bare.value < 0.9)
    yield c.say("kink")
    yield c.say("probes")
    yield c.say("factor", min(x.range[0] for x in c["products"]) > 0)
    yield c.say("seed")


PLACES: Places = (
    answers,
    cards_and_planted,
    jain_wallace,
    serrano,
)

"""Which sentences of `findings.md` the tables of studies support, and of MiniLM beside a BiLSTM."""

from __future__ import annotations

from results_page.findings import Cell, Cells, Places, Sentences, Tables

DISTANCES = "chunking_conll2000_adversary_distances"
ADVERSARIES = "chunking_conll2000_adversaries"


def wiegreffe_pinter_sst(t: Tables) -> Sentences:
    """SST with random vectors, with trained vectors, and with phrases."""
    c = Cells(t, "wiegreffe_pinter_sst_findings")
    needed = t.answer("wiegreffe_pinter_sst")
    yield c.say("uniform", c.uniform.open and needed == "not shown to be needed")
    enough = min(x.counts[-1] for x in (c.others, c.twins)) >= 5
    yield c.say("adversary", c.tvd.open and c.f1.open and enough)
    yield c.say("worse", c.adversary.below and c.adversaries.counts[-1] >= 5)
    yield c.say("base", c.base.below and not c.other.below and c.other_seeds.counts[-1] >= 5)
    most = max(x.deviation for x in c["js"])
    far = max(x.deviation for x in c["js"] if x.value > 0.6)
    yield c.say("spread", far <= 0.004 and most >= 0.1, far=far, most=most)
    c = Cells(t, "wiegreffe_pinter_sst_vectors_findings")
    holds = c.trained.low > c.before.high and c.other.value < c.others.value
    yield c.say("trained", holds and not c.others.low > c.other.high)
    twins = c.twins.counts[-1]
    yield c.say("few", twins < 5, twins=twins)
    holds = c.shuffled.above and c.shuffled.low > c.shuffled_before.high
    yield c.say("guides", holds and c.uniform.open and c.uniform_before.below)
    c = Cells(t, "wiegreffe_pinter_sst_phrases_findings")
    needed = t.answer("wiegreffe_pinter_sst_phrases")
    yield c.say("few", needed == "without enough seeds to say" and c.seeds.value < 5)


def wiegreffe_pinter(t: Tables) -> Sentences:
    """20 Newsgroups and IMDb."""
    c = Cells(t, "wiegreffe_pinter_20_newsgroups_sports_findings")
    yield c.say("uniform", c.uniform.value < 0.005)
    yield c.say("learned", c.learned.above and c.shuffled.above)
    lambdas = t.cells("wiegreffe_pinter_20_newsgroups_sports_lambdas", "JS")
    name, widest = max(lambdas.items(), key=lambda item: item[1].deviation)
    yield c.say("spread", widest.deviation >= 0.2, name=name, js=widest)
    c = Cells(t, "wiegreffe_pinter_imdb_findings")
    holds = c.uniform.below and t.answer("wiegreffe_pinter_imdb") == "shown to be needed"
    yield c.say("needed", holds, needed=t.needed())
    holds = c.largest.value > 0.6 and not any(0.35 < x.value < 0.6 for x in c["js"])
    yield c.say("gap", holds)
    yield c.say("falls", c.f1_strong.value < min(c.f1_strongest.value, c.f1_control.value))
    yield c.say("guides", c.base.above and c.shuffled.above and c.seeds.value >= 5)


def chunking(t: Tables) -> Sentences:
    """The tagger, its adversaries and probes; every token's tag against one marked token's."""
    c = Cells(t, "chunking_conll2000_findings")
    holds = c.less.below and t.answer("chunking_conll2000") == "shown to be needed"
    yield c.say("needed", holds, needed=t.needed())
    rows = [row for row in t.rows(ADVERSARIES) if not row["term"].endswith("(Yang 2020)")]
    best = next(row for row in rows if "chosen" in row["term"])
    term, few = best["term"].partition(";")[0], Cell(best["seeds"]).counts[-1] < 5
    js, f1 = (t.cell(*of, term) for of in ((DISTANCES, "JS"), (ADVERSARIES, "chunk F1")))
    yield c.say("best", few, term=term, js=js, f1=f1)
    released = [row for row in rows if row["term"].startswith("KL (released scale)")]
    first, *rest = (Cell(row["NLL, gold"]).value for row in released)
    seeds = " or ".join(dict.fromkeys(row["seeds"] for row in released))
    holds = all(row["collapsed"].startswith("0 of") for row in rows)
    holds &= first < 0.3 and min(rest) > 0.45
    yield c.say("collapse", holds, first=first, least=min(rest), most=max(rest), seeds=seeds)
    models = t.cells("chunking_conll2000_models", "chunk F1")
    guides = {"base": "of the base", "uniform": "uniform", "adversary": "of the adversary"}
    guides["shuffled"] = "of the base, shuffled within each sentence"
    probe, alone = (
        {key: models[f"probe {model}: attention {guide}"] for key, guide in guides.items()}
        for model in ("with the base's encoder", "that reads each token alone")
    )
    holds = all(x["base"].low > x["shuffled"].high for x in (probe, alone))
    yield c.say("probes", holds, probe=probe, alone=alone)
    tau = t.cell(DISTANCES, "tau", term)
    yield c.say("tau", c.seeds.low > tau.high, tau=tau)
    c = Cells(t, "exclusivity_conll2000_findings")
    yield c.say("open", all(x.open for x in c["settings"]))
    holds = c.share_marked.low > c.share_tokens.high and c.tvd_marked.low > c.tvd_tokens.high
    yield c.say("obstacle", holds and c.right_tokens.low > c.right_marked.high)


def beside(a: Cell, b: Cell, high: str = "above", low: str = "below") -> str:
    """How the interval of a figure lies beside that of another."""
    return high if a.low > b.high else low if a.high < b.low else "not told apart from"


def minilm(t: Tables) -> Sentences:
    """SST by MiniLM beside a BiLSTM: in each column a BiLSTM, frozen, tuned, and its last layer."""
    c = Cells(t, "minilm_findings")
    bilstm, frozen, tuned, last = c["accuracy"]
    holds = min(tuned.low, last.low) > max(frozen.high, bilstm.high)
    yield c.say("accuracy", holds, compared=beside(frozen, bilstm, "better than", "worse than"))
    for words in ("gradient", "leave-one-out"):
        tau = t.figures("minilm_jain_wallace", f"tau with {words}")
        holds = max(x.high for x in tau[1:]) < 0.5 and tau[0].value < 0.5
        words = "the gradient" if words == "gradient" else words
        yield c.say(
            "agreement", holds, words=words, tau=tau, compared=[beside(x, tau[0]) for x in tau]
        )
    own, *tvd = c["tvd"]
    names = ["attention above the frozen MiniLM", "attention above the fine-tuned MiniLM"]
    names += ["the fine-tuned model's last layer"]
    for model, moved, flipped in zip(names, tvd, c["flips"][1:], strict=True):
        compared = beside(moved, own, "more than", "less than")
        yield c.say("shuffled", model=model, moved=moved, flipped=flipped, compared=compared)
    own, above, *_ = c["share"]
    compared = beside(above, own, "more than", "less than")
    yield c.say("another", min(x.low for x in c["share"]) > 0.5, compared=compared)
    columns = (t.cells("minilm_serrano_smith", "removed, attention"), c["removed_gradient"])
    each = "; ".join(
        f"{a.number} of the items against {b.number}, a difference of {more} ({name})"
        for (name, a), b, more in zip(columns[0].items(), columns[1], c["more"], strict=True)
    )
    clear = sum(x.above for x in c["more"])
    models = "every model" if clear == len(c["more"]) else f"{clear} of {len(c['more'])} models"
    yield c.say("erasure", min(x.value for x in c["more"]) > 0, clear=models, each=each)
    yield c.say("uniform", c.uniform_seeds.counts[-1] >= 5 and c.uniform.open)
    yield c.say("price", c.price.low > c.paid.high and c.paid.open)
    yield c.say("seeds", c.own.high < c.theirs.low)
    holds = c.pushed_js.low > c.alone_js.high and c.pushed_seeds.number == "1"
    farther = beside(c.pushed_tvd, c.alone_tvd, "more than", "less than")
    yield c.say("pushed", holds, farther=farther, lost=beside(c.pushed_f1, c.alone_f1))


def minilm_layers(t: Tables) -> Sentences:
    """One layer without its attention, and all of them; what pre-training changes."""
    c = Cells(t, "minilm_control_findings")
    for row in t.rows("minilm_control")[:2]:
        found = {column: Cell(text) for column, text in row.items()}
        flips = (found[f"decisions flipped, {part}"] for part in ("all layers", "last layer"))
        holds = found["TVD, all less last"].above and next(flips).low > next(flips).high
        yield c.say("made", holds, becomes=row["attention becomes"], **found)
    yield c.say("off", c.last.low > max(c.uniform.high, c.head.high))
    c = Cells(t, "minilm_answer")
    tau, (bilstm, frozen, tuned, last) = c["tau"], c["tvd"]
    holds = max(x.high for x in tau[1:]) < 0.5 and tau[0].value < 0.5
    yield c.say("agree", holds and min(x.low for x in c["share"]) > 0.5)
    holds = frozen.low > max(bilstm.high, tuned.high, last.high) and not tuned.low > bilstm.high
    yield c.say("trained", holds)


PLACES: Places = (
    wiegreffe_pinter_sst,
    wiegreffe_pinter,
    chunking,
    minilm,
    minilm_layers,
)

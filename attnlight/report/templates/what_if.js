// The page of the what-if: a list of texts, and for each run a panel on the chosen one.

const PAGE = 100; // texts of the list that are drawn at once
const CLASSES = 6; // most bars of predictions
const [MARKED, FLIP, THIS] = [7, 8, 16]; // bits of an item

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made && name !== "role") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const number = (value) =>
  Number.isFinite(value) ? value.toFixed(Math.abs(value) < 10 ? 3 : 1) : "–"; // prettier-ignore

const textOf = (parts) => parts.map(({ before, text }) => before + text).join("");

/** What texts are sorted by: a name and a function from a place to a number. */
function measuresOf(set, other) {
  const attention = (at) => meanOfHeads(rowOf(set, at).weights, set.heads);
  const flips = (at) => rowOf(set, at).flags.reduce((sum, flag) => sum + (flag & FLIP ? 1 : 0), 0);
  const measures = [
    ["number", (at) => at],
    ["words", (at) => set.lengths[at]],
    ["probability of the prediction", (at) => Math.max(...rowOf(set, at).probabilities)],
    ["largest weight", (at) => Math.max(...attention(at))],
    ["entropy of attention", (at) => entropy(attention(at))],
    ["words that flip the decision", (at) => flips(at) || NaN],
  ];
  if (set.classes.length === 2 || !set.item_logits.length)
    measures.push(["worst case (JS)", (at) => worstCase(rowOf(set, at), set.epsilon).js]);
  if (Object.keys(set.maps).length)
    measures.push(["has attention of all layers", (at) => (mapOf(set, at) ? 1 : NaN)]);
  if (other) {
    const pair = (at) => [rowOf(set, at), rowOf(other, other.places.get(set.keys[at].join(":")))];
    const moved = ([a, b]) => totalVariation([...a.probabilities], b.probabilities);
    measures.push(["distance of the runs' predictions (TVD)", (at) => moved(pair(at))]);
  }
  for (const [name, pair] of Object.entries(set.measures)) {
    const values = halves(...pair);
    if (values.some(Number.isFinite)) measures.push([name, (at) => values[at]]);
  }
  return measures.map(([name, of]) => ({ name, of, values: null }));
}

/** A run's view of the chosen text: predictions, bars to change, and rows of methods. */
class Panel {
  constructor(set, browser) {
    Object.assign(this, { set, browser, head: 0, epsilon: set.epsilon, another: 0 });
    this.root = element("article", { className: "try-panel" });
    this.root.addEventListener("keydown", (event) => this.pressed(event));
    this.root.addEventListener("pointerdown", (event) => this.dragged(event));
    this.root.addEventListener("pointermove", (event) => event.buttons && this.dragged(event));
    for (const kind of ["pointerover", "focusin"])
      this.root.addEventListener(kind, (event) => this.tell(event.target));
  }

  show(at) {
    Object.assign(this, { at, row: rowOf(this.set, at), focus: 0, another: 0 });
    this.now = this.row.weights;
    this.predicted = argmax(this.row.probabilities);
    this.own = meanOfHeads(this.row.weights, this.row.heads);
    let first = 0;
    this.words = this.row.parts.flatMap(({ text, count }) => {
      const items = Array.from({ length: count }, (_, i) => first + i);
      first += count;
      return count ? [{ text, items }] : [];
    });
    this.worst = worstCase(this.row, this.epsilon);
    const map = mapOf(this.set, at);
    this.maps = map && new LayerMaps(map, this.maps);
    const parts = [...this.heading(), this.controls(), this.bars(), this.layers()];
    this.root.replaceChildren(...parts, ...(this.maps ? [this.maps.root] : []));
    this.draw();
  }

  heading() {
    const { set, at, row } = this;
    const label = set.labels[at];
    const named = set.classes[this.predicted];
    const wrong = label >= 0 && label !== this.predicted;
    const name = `${this.browser.nameOf(at, set)}: `;
    const title = element("h3", {}, name, element("strong", {}, named));
    if (label >= 0) title.append(` predicted, ${wrong ? set.classes[label] : "as"} in the corpus`);
    title.classList.toggle("wrong", wrong);
    const order = [...row.probabilities.keys()].sort(
      (a, b) => row.probabilities[b] - row.probabilities[a],
    );
    this.bar = new Map();
    const shown = order.filter((c) => row.probabilities[c] > 0).slice(0, CLASSES);
    const bars = shown.map((c) => {
      const [fill, value] = [element("i"), element("span")];
      const mark = element("b", { style: `left:${100 * row.probabilities[c]}%` });
      this.bar.set(c, [fill, value]);
      const track = element("span", { className: "track", "aria-hidden": true }, fill, mark);
      return element("div", {}, element("span", {}, set.classes[c]), track, value);
    });
    this.status = element("p", { className: "moved", role: "status" });
    const predictions = element("div", { className: "predictions" }, ...bars);
    const query = set.queries[at];
    const asked = element("small", { className: "part" }, set.asked);
    return [
      set.several ? element("h4", {}, set.run) : null,
      title,
      query ? element("p", { className: "query", dir: "auto" }, asked, query) : null,
      element("div", { className: "now" }, predictions, this.status),
    ].filter((part) => part !== null);
  }

  controls() {
    const { row, set } = this;
    const affine = row.itemLogits !== null;
    const button = (name, weights, disabled = false) =>
      element("button", { type: "button", disabled, onclick: () => this.set_(weights()) }, name);
    const stored = (k) => row.candidates[k] && Float64Array.from(row.candidates[k].weights);
    const uniform = () =>
      affine ? new Float64Array(row.weights.length).fill(1 / row.n) : stored(1);
    const flips = [...row.flags.keys()].filter((i) => row.flags[i] & FLIP);
    const lacking = !affine && !row.candidates.length;
    this.slider = element("input", { type: "range", min: 0, max: 100, step: 1 });
    this.slider.value = (100 * Math.log(this.epsilon / 0.001)) / Math.log(500);
    this.slider.disabled = lacking;
    this.slider.oninput = () => {
      this.epsilon = Number((0.001 * 500 ** (this.slider.value / 100)).toPrecision(2));
      this.worst = worstCase(row, this.epsilon);
      this.set_(this.worst.attention, this.worst.head);
      this.colour();
    };
    this.slider.setAttribute("aria-label", "how far the prediction may move in the worst case");
    this.limit = element("output");
    const controls = element(
      "div",
      { className: "controls", role: "group", "aria-label": "Replace the attention" },
      button("model's own", () => row.weights),
      button("uniform", uniform, lacking),
      button("shuffled", () => (affine ? this.shuffled() : stored(2)), lacking),
      button("another's", () => this.others(), !affine || this.browser.all.length < 2),
      flips.length && affine
        ? button("without framed words", () => this.changed(row.weights, flips, 0, true))
        : null,
      button("worst case", () => this.worst.attention, lacking),
      element("label", {}, "prediction may move by ", this.slider, " ", this.limit),
    );
    if (row.heads > 1) {
      const options = Array.from({ length: row.heads }, (_, h) =>
        element("option", { value: h }, `head ${h + 1}`),
      );
      this.heads = element("select", { "aria-label": "head whose attention is shown" }, ...options);
      this.heads.onchange = () => this.set_(this.now, Number(this.heads.value));
      controls.append(this.heads);
    }
    return controls;
  }

  /** The sum of a word's items, which are several where they are bytes of one character. */
  total(values, i) {
    return this.words[i].items.reduce((sum, item) => sum + values[item], 0);
  }

  /** The text in order: what `make` gives for each word, and what is between; a pair has labels. */
  written(make) {
    let i = 0;
    const gap = (text) => element("span", { className: "gap" }, text);
    const label = (text) => element("small", { className: "part" }, text);
    const pair = this.row.parts.some(({ before }) => before === this.set.between);
    const words = this.row.parts.flatMap(({ before, text, count }) => {
      const part = count ? make(text, i) : gap(text);
      i += count ? 1 : 0;
      if (before === this.set.between) return [label("query"), part];
      return before.trim() ? [gap(before), part] : [before, part];
    });
    return pair ? [label("passage"), ...words] : words;
  }

  bars() {
    this.cells = [];
    const parts = this.written((text, i) => {
      const bar = element("span", {
        ...{ className: "weight", role: "slider", tabIndex: i ? -1 : 0, "aria-label": text },
        ...{ "aria-orientation": "vertical", "aria-valuemin": 0, "aria-valuemax": 100 },
      });
      if (!this.row.itemLogits) bar.setAttribute("aria-disabled", true);
      bar.append(element("i"), element("b"));
      const word = element("span", { className: this.kind(i), dir: "auto" }, text);
      this.cells.push(element("span", { className: "cell", "data-i": i }, bar, word));
      return this.cells[i];
    }).filter((part) => typeof part !== "string");
    const name = "Attention by word. Arrow keys up and down change it, left and right move on.";
    this.told = element("p", { className: "told" });
    const kind = this.words.length > 60 ? "cells many" : "cells";
    return element("div", { className: kind, role: "group", "aria-label": name }, ...parts);
  }

  kind(i) {
    const flag = this.words[i].items.reduce((bits, item) => bits | this.row.flags[item], 0);
    const names = [["marked", MARKED], ["flip", FLIP], ["this", THIS]]; // prettier-ignore
    return ["word", ...names.filter(([, bits]) => flag & bits).map(([name]) => name)].join(" ");
  }

  /** Rows of methods: the words, coloured by each score. */
  layers() {
    const { row, set, at } = this;
    const start = set.starts[at];
    this.scores = [
      ["attention (the model's)", () => this.own],
      ...set.scores.map(([name, all]) => [name, () => all.subarray(start, start + row.n)]),
      ["worst case", () => meanOfHeads(this.worst.attention, row.heads)],
    ].filter(([, values]) => values().some((value) => value));
    if (row.itemLogits) {
      const odds = aloneOdds(row, this.predicted);
      this.scores.push(["each word alone", () => odds]);
    }
    this.lines = this.scores.map(([name]) => {
      const words = this.written((text, i) =>
        element("span", { className: this.kind(i), "data-i": i, dir: "auto" }, text),
      );
      const title = element("span", { className: "name" }, name);
      return element("p", { className: "method" }, title, ...words);
    });
    const root = element("div", { className: "layers" }, this.told, ...this.lines);
    this.colour();
    return root;
  }

  colour() {
    this.lines.forEach((line, k) => {
      const items = this.scores[k][1]();
      const values = this.words.map((_, i) => this.total(items, i));
      const largest = values.reduce((most, v) => Math.max(most, Math.abs(v) || 0), 0) || 1;
      for (const word of line.querySelectorAll("[data-i]")) {
        const value = values[word.dataset.i] || 0;
        word.style.setProperty("--share", `${(100 * Math.abs(value)) / largest}%`);
        word.classList.toggle("against", value < 0);
      }
      if (this.scores[k][0] === "worst case")
        line.firstChild.textContent = `worst case at ${this.epsilon}`;
    });
  }

  /** Show other weights of all heads. */
  set_(weights, head = this.head) {
    Object.assign(this, { now: weights, head });
    this.draw();
  }

  /** Weights in which some items have a value in the head that is shown, or in all heads. */
  changed(weights, items, value, everywhere = false) {
    const [{ heads, n }, now] = [this.row, Float64Array.from(weights)];
    for (let h = 0; h < heads; h++)
      if (h === this.head || everywhere)
        now.set(withWeight(ofHead(now, h, heads), items, value), h * n);
    return now;
  }

  shuffled() {
    const { n, weights } = this.row;
    const places = shuffledPlaces(n, Math.random);
    return weights.map((_, i) => weights[i - (i % n) + places[i % n]]);
  }

  /** The other run's attention, or that of the next text of most similar length. */
  others() {
    const { set, row, browser, at } = this;
    const other = browser.panels.find((panel) => panel !== this);
    let [from, place] = [set, at];
    if (other) [from, place] = [other.set, other.at];
    else {
      const gaps = set.lengths.map((length, k) => (k === at ? Infinity : Math.abs(length - row.n)));
      const least = Math.min(...gaps);
      const equal = [...gaps.keys()].filter((k) => gaps[k] === least);
      place = equal[this.another++ % equal.length];
    }
    const given = rowOf(from, place);
    this.source = other ? other.set.run : browser.nameOf(place, set);
    const now = new Float64Array(row.weights.length);
    for (let h = 0; h < row.heads; h++)
      now.set(fitted(ofHead(given.weights, h % given.heads, given.heads), row.n), h * row.n);
    this.lent = now;
    return now;
  }

  probabilities() {
    const { row, now } = this;
    if (now === row.weights) return row.probabilities;
    if (row.itemLogits) return softmax(readLogits(now, row.itemLogits, row.classes));
    const same = row.candidates.find((other) => other.weights.every((w, i) => w === now[i]));
    return same ? same.probabilities : row.probabilities;
  }

  draw() {
    const { row, set } = this;
    const ofShown = (weights) => {
      const items = ofHead(weights, this.head, row.heads);
      return this.words.map((_, i) => this.total(items, i));
    };
    const [shown, own] = [ofShown(this.now), ofShown(row.weights)];
    const largest = Math.max(...shown) || 1;
    this.shown = shown;
    this.cells.forEach((cell, i) => {
      cell.style.setProperty("--now", Math.sqrt(shown[i]));
      cell.style.setProperty("--own", Math.sqrt(own[i]));
      cell.style.setProperty("--share", `${(100 * shown[i]) / largest}%`);
      cell.firstChild.setAttribute("aria-valuenow", number(100 * shown[i]));
      const text = `${number(100 * shown[i])} per cent, the model's ${number(100 * own[i])}`;
      cell.firstChild.setAttribute("aria-valuetext", text);
    });
    const probabilities = this.probabilities();
    for (const [c, [fill, value]] of this.bar) {
      fill.style.width = `${100 * probabilities[c]}%`;
      value.textContent = number(probabilities[c]);
    }
    const decision = argmax(probabilities);
    const moved = totalVariation([...probabilities], row.probabilities);
    const js = headsDivergence(this.now, row.weights, row.heads);
    const changed = decision !== this.predicted;
    this.status.replaceChildren(
      changed ? element("strong", {}, `Now ${set.classes[decision]}. `) : "",
      `The prediction moves by ${number(moved)} (TVD), attention by ${number(js)} of at most 0.693 (JS).`,
      ` ${this.remark()}`,
    );
    this.limit.textContent = this.epsilon;
    this.slider.setAttribute("aria-valuetext", `${this.epsilon}`);
    if (this.heads) this.heads.value = this.head;
  }

  remark() {
    const { row, worst, now } = this;
    if (now === this.lent) return `This is the attention of ${this.source}.`;
    if (now === worst.attention && now !== row.weights) {
      const of = row.heads > 1 ? " of this head, the others as they are" : "";
      if (worst.exact) return `No attention${of} that moves it by at most ${this.epsilon} differs more.`; // prettier-ignore
      const searched = row.itemLogits ? "that was found" : "that the record has";
      return `This is the most different attention ${searched}; another may differ more.`;
    }
    if (row.itemLogits) return "";
    return "What follows attention is not affine in this model, so that the page knows only the predictions that the record has."; // prettier-ignore
  }

  /** Say the scores of the word that is pointed at or has the focus. */
  tell(target) {
    const holder = target.closest("[data-i]");
    const i = holder ? Number(holder.dataset.i) : this.focus;
    for (const word of this.root.querySelectorAll(".here")) word.classList.remove("here");
    if (!holder) return;
    for (const word of this.root.querySelectorAll(`[data-i="${i}"]`)) word.classList.add("here");
    const values = this.scores.map(([name, of]) => `${name} ${number(this.total(of(), i))}`);
    const now = number(this.shown[i]);
    this.told.textContent = `${this.words[i].text}: attention now ${now}, ${values.join(", ")}`;
  }

  dragged(event) {
    const bar = event.target.closest(".weight");
    if (!bar || !this.row.itemLogits || event.button > 0) return;
    const i = Number(bar.parentElement.dataset.i);
    if (event.type === "pointerdown") {
      bar.setPointerCapture(event.pointerId);
      this.focusOn(i);
    }
    const box = bar.getBoundingClientRect();
    const height = Math.min(Math.max((box.bottom - event.clientY) / box.height, 0), 1);
    this.set_(this.changed(this.now, this.words[i].items, height ** 2));
    this.tell(bar);
    event.preventDefault();
  }

  focusOn(i) {
    this.cells[this.focus].firstChild.tabIndex = -1;
    this.focus = Math.min(Math.max(i, 0), this.words.length - 1);
    const bar = this.cells[this.focus].firstChild;
    bar.tabIndex = 0;
    bar.focus();
  }

  pressed(event) {
    if (
      !event.target.classList.contains("weight") ||
      event.altKey ||
      event.ctrlKey ||
      event.metaKey
    )
      return;
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    const steps = { ArrowUp: 0.01, ArrowDown: -0.01, PageUp: 0.1, PageDown: -0.1, Home: -1, End: 1, Delete: -1 }; // prettier-ignore
    if (event.key in moves) this.focusOn(this.focus + moves[event.key]);
    else if (event.key in steps && this.row.itemLogits) {
      const value = Math.min(Math.max(this.shown[this.focus] + steps[event.key], 0), 1);
      this.set_(this.changed(this.now, this.words[this.focus].items, value));
      this.tell(event.target);
    } else return;
    event.preventDefault();
  }
}

/** The list of texts, and the panels of the runs that have them. */
class Browser {
  constructor(root, groups) {
    Object.assign(this, { root, groups, find: (name) => root.querySelector(`[name=${name}]`) });
    const options = groups.map((group, k) => element("option", { value: k }, group.name || "own corpus")); // prettier-ignore
    this.find("corpus").append(...options);
    this.find("corpus").closest("label").hidden = groups.length < 2;
    this.list = root.querySelector("ol");
    this.more = root.querySelector(".more");
    this.find("corpus").onchange = () => this.open(Number(this.find("corpus").value));
    for (const name of ["search", "class", "outcome", "sort"])
      this.find(name).addEventListener("input", () => this.filter());
    this.find("reverse").onclick = (event) => {
      const pressed = event.target.getAttribute("aria-pressed") === "true";
      event.target.setAttribute("aria-pressed", !pressed);
      this.filter();
    };
    this.list.onclick = (event) => {
      const button = event.target.closest("button");
      if (button) this.choose(Number(button.dataset.at));
    };
    this.more.onclick = () => this.extend();
    document.addEventListener("keydown", (event) => this.pressed(event));
    addEventListener("hashchange", () => this.follow(true));
    this.open(0);
    this.follow(false);
  }

  open(k) {
    const group = this.groups[k];
    group.decoded = group.decoded || group.sets.map(decoded);
    const [set, other] = group.decoded;
    for (const each of group.decoded) each.several = group.decoded.length > 1;
    this.find("corpus").value = k;
    Object.assign(this, { k, set, other });
    this.panels = group.decoded.map((each) => new Panel(each, this));
    this.root.querySelector(".try-panels").replaceChildren(...this.panels.map((p) => p.root));
    this.measures = group.measures = group.measures || measuresOf(set, other);
    const names = this.measures.map(({ name }, m) => element("option", { value: m }, name));
    this.find("sort").replaceChildren(...names);
    const classes = set.classes.map((name, c) => element("option", { value: c }, name));
    this.find("class").replaceChildren(element("option", { value: "" }, "any class"), ...classes);
    this.predicted = set.keys.map((_, at) => argmax(rowOf(set, at).probabilities));
    this.find("outcome").querySelector("[value=apart]").hidden = !other;
    this.all = [...set.keys.keys()];
    if (other) this.all = this.all.filter((at) => other.places.has(set.keys[at].join(":")));
    this.root.classList.toggle("single", this.all.length < 2);
    this.filter();
    this.choose(this.shown[0], false);
  }

  nameOf(at, set = this.set) {
    const [index, position] = set.keys[at];
    return `Text ${index}${position ? `:${position}` : ""}`;
  }

  filter() {
    const { set, predicted } = this;
    const words = this.find("search").value.trim().toLowerCase();
    const [kind, outcome] = [this.find("class").value, this.find("outcome").value];
    set.lower = set.lower || set.rows.map((parts) => textOf(parts).toLowerCase());
    const kept = this.all.filter((at) => {
      if (words && !set.lower[at].includes(words)) return false;
      if (kind !== "" && predicted[at] !== Number(kind)) return false;
      if (outcome === "right" || outcome === "wrong")
        return set.labels[at] >= 0 && (set.labels[at] === predicted[at]) === (outcome === "right");
      return outcome !== "apart" || this.disagree(at);
    });
    const measure = this.measures[Number(this.find("sort").value)];
    measure.values = measure.values || set.keys.map((_, at) => measure.of(at));
    const sign = this.find("reverse").getAttribute("aria-pressed") === "true" ? -1 : 1;
    const last = (at) => (Number.isNaN(measure.values[at]) ? 1 : 0);
    kept.sort(
      (a, b) => last(a) - last(b) || sign * (measure.values[a] - measure.values[b]) || a - b,
    );
    this.shown = kept;
    this.measure = this.find("sort").value === "0" ? null : measure;
    const more = set.recorded - set.keys.length;
    const [found, all] = [kept, this.all].map(({ length }) => length.toLocaleString("en"));
    const counted = set.keys.some(([, position]) => position) ? "words" : "texts";
    const said = `${found} of ${all} ${counted}`;
    const left = more ? `; ${more.toLocaleString("en")} more would make the page too large` : "";
    this.root.querySelector(".try-list [role=status]").textContent = said + left;
    this.list.replaceChildren();
    this.extend();
  }

  disagree(at) {
    const place = this.other.places.get(this.set.keys[at].join(":"));
    return argmax(rowOf(this.other, place).probabilities) !== this.predicted[at];
  }

  /** The beginning of a text, or what is around its word that is predicted, in bold type.
   *  A word of a translation is none of the text and stands before it. */
  excerpt(at) {
    const { flags, parts } = rowOf(this.set, at);
    let [item, place] = [0, 0];
    const words = parts.map(({ before, text, count }, part) => {
      const chosen = flags.slice(item, (item += count)).some((flag) => flag & THIS);
      if (chosen) place = part;
      return chosen ? [before, element("b", {}, text)] : [before + text];
    });
    const start = Math.max(0, place - 6);
    const source = words.slice(start, start + 14).flat();
    if (this.set.asked === "query") return source;
    return [element("b", {}, this.set.classes[this.predicted[at]]), " · ", ...source];
  }

  /** Draw more texts of the list. */
  extend() {
    const start = this.list.children.length;
    const added = this.shown.slice(start, start + PAGE).map((at) => {
      const { set, measure, predicted } = this;
      const wrong = set.labels[at] >= 0 && set.labels[at] !== predicted[at];
      const name = this.nameOf(at).slice(5);
      const value = measure ? element("small", {}, ` ${number(measure.values[at])}`) : null;
      const title = element("b", { className: wrong ? "wrong" : "" }, name);
      const said = wrong ? element("i", { className: "unseen" }, " wrongly predicted") : "";
      const line = element("span", {}, title, said, value || "", " ", ...this.excerpt(at));
      const button = element("button", { type: "button", "data-at": at }, line);
      return element("li", {}, button);
    });
    this.list.append(...added);
    this.more.hidden = this.list.children.length >= this.shown.length;
    this.mark();
  }

  mark() {
    for (const button of this.list.querySelectorAll("[aria-current]"))
      button.removeAttribute("aria-current");
    const button = this.list.querySelector(`[data-at="${this.at}"]`);
    if (button) button.setAttribute("aria-current", "true");
    return button;
  }

  choose(at, addressed = true) {
    if (at === undefined) return;
    this.at = at;
    const held = this.panels.find((panel) => panel.root.contains(document.activeElement));
    for (const panel of this.panels)
      panel.show(panel.set === this.set ? at : panel.set.places.get(this.set.keys[at].join(":")));
    if (held) held.focusOn(0);
    if (addressed) history.replaceState(null, "", this.address(at));
    const button = this.mark();
    if (button && addressed) {
      const [box, list] = [button.getBoundingClientRect(), this.list.getBoundingClientRect()];
      if (box.top < list.top) this.list.scrollTop -= list.top - box.top;
      if (box.bottom > list.bottom) this.list.scrollTop += box.bottom - list.bottom;
    }
  }

  address(at) {
    const name = this.nameOf(at).slice(5);
    return `#text=${name}${this.k ? `&corpus=${encodeURIComponent(this.groups[this.k].name)}` : ""}`;
  }

  /** Open the text that the address names. */
  follow(moved) {
    const given = new URLSearchParams(location.hash.slice(1));
    if (!given.has("text")) return;
    const k = this.groups.findIndex((group) => group.name === (given.get("corpus") || ""));
    if (k >= 0 && k !== this.k) this.open(k);
    const [index, position = "0"] = given.get("text").split(":");
    const at = this.set.places.get(`${index}:${position}`);
    if (at === undefined) return;
    this.choose(at);
    this.root.scrollIntoView();
    if (moved) this.root.querySelector("h2").focus({ preventScroll: true });
  }

  pressed(event) {
    const step = { j: 1, k: -1 }[event.key];
    const typing = event.target.closest("select,textarea,input:not([type=range])");
    if (!step || typing || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = this.shown.indexOf(this.at) + step;
    if (next >= this.list.children.length) this.extend();
    if (next >= 0 && next < this.shown.length) this.choose(this.shown[next]);
  }
}

const root = document.getElementById("try");
root.hidden = false;
new Browser(root, JSON.parse(document.getElementById("try-data").textContent));

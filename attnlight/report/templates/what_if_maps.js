// Attention between all tokens of a text, by layer and head.

/** What the record has of a text's layers, and what this row of it reads; null where it has nothing. */
function mapOf(set, at) {
  const [index, position] = set.keys[at];
  const map = set.maps[index];
  if (!map) return null;
  map.values = map.values || halves(...map.weights);
  if (!map.read) return map;
  // Rows of one text are tokens, each of which reads its own state.
  const own = Float32Array.from(map.words, (_, i) => (i === position ? 1 : 0));
  return { ...map, shares: position === map.position ? halves(...map.read) : own };
}

/** A map of a layer and head, and rows of it as coloured words. */
class LayerMaps {
  /** `before`: the maps that were shown until now, whose layer, head and state are kept. */
  constructor(map, before) {
    const [layers, heads, rows, size] = map.shape;
    const { layer = layers, head = 0, root = {} } = before || {};
    Object.assign(this, { map, layers, heads, rows, size });
    Object.assign(this, { layer: Math.min(layer, layers), head: Math.min(head, heads) });
    this.lines = element("div", { className: "layers" });
    this.root = element("details", { className: "maps", open: Boolean(root.open) });
    if (rows > 1) this.between();
    else this.inside();
  }

  /** Words of sentences: one weight each. */
  inside() {
    this.root.append(element("summary", {}, "Attention of words inside their sentences"));
    this.lines.append(this.line("attention of words", this.map.values));
    this.root.append(this.lines);
  }

  between() {
    const { map, layers, heads } = this;
    this.read = argmax(map.shares);
    this.place = [this.read, argmax(this.weights().subarray(this.read * this.size, (this.read + 1) * this.size))]; // prettier-ignore
    this.canvas = element("canvas", { tabIndex: 0, role: "img" });
    this.canvas.onkeydown = (event) => this.pressed(event);
    this.canvas.onpointerdown = (event) => this.pointed(event);
    this.said = element("p", { className: "told", role: "status" });
    const choice = (name, first, count) => {
      const others = Array.from({ length: count }, (_, i) => `${name} ${i + 1}`);
      const texts = [...first, ...others];
      const options = texts.map((text, i) => element("option", { value: i }, text));
      const select = element("select", { "aria-label": `${name} whose attention is shown` }, ...options); // prettier-ignore
      select.value = this[name] - 1 + first.length;
      select.onchange = () => {
        this[name] = Number(select.value) + 1 - first.length;
        this.draw();
      };
      return select;
    };
    const controls = element("div", { className: "controls" });
    controls.append(choice("layer", [], layers));
    if (heads > 1) controls.append(choice("head", ["mean of heads"], heads));
    const words = (className) =>
      element("div", { className, "aria-hidden": true }, ...map.words.map((word) => element("span", { dir: "auto" }, word))); // prettier-ignore
    const grid = element(
      "div",
      { className: "grid" },
      words("above"),
      words("beside"),
      this.canvas,
    );
    this.root.append(
      element("summary", {}, "Attention between all words, by layer and head"),
      controls,
      element("p", { className: "note" }, "Each row is of the word that attends, each column of the word that is attended to. Click, or move by the arrow keys."), // prettier-ignore
      element("div", { className: "scroll" }, grid),
      this.said,
      this.lines,
    );
    this.rolled = rolledOut(map.shares, map.values, [layers, heads, this.size]);
    this.draw();
  }

  /** Weights (rows * size) of the chosen layer and head, or the mean of its heads. */
  weights() {
    const { map, heads, rows, size, layer, head } = this;
    const of = map.values.subarray((layer - 1) * heads * rows * size, layer * heads * rows * size);
    return head ? ofHead(of, head - 1, heads) : meanOfHeads(of, heads);
  }

  draw() {
    const { canvas, size, map, place, read } = this;
    const weights = this.weights();
    const cell = size > 40 ? 12 : 18;
    canvas.parentElement.style.setProperty("--cell", `${cell}px`);
    canvas.width = canvas.height = size * cell;
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    pen.fillStyle = style.getPropertyValue("--accent").trim() || "#1f77b4";
    for (let i = 0; i < weights.length; i++) {
      pen.globalAlpha = Math.sqrt(Math.min(weights[i], 1));
      pen.fillRect((i % size) * cell, Math.floor(i / size) * cell, cell, cell);
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = style.getPropertyValue("--ink").trim() || "#000";
    pen.lineWidth = 2;
    pen.strokeRect(place[1] * cell + 1, place[0] * cell + 1, cell - 2, cell - 2);
    const [from, to] = place;
    const name = this.head ? `layer ${this.layer}, head ${this.head}` : `layer ${this.layer}, mean of heads`; // prettier-ignore
    const row = (k) => weights.subarray(k * size, (k + 1) * size);
    this.said.textContent = `${name}: ${map.words[from]} attends to ${map.words[to]} with ${number(row(from)[to])}`;
    canvas.setAttribute("aria-label", this.said.textContent);
    const lines = [this.line(`${name}: what ${map.words[from]} attends to`, row(from))];
    if (from !== read)
      lines.push(
        this.line(`${name}: what ${map.words[read]}, which is read, attends to`, row(read)),
      );
    lines.push(this.line("rollout of all layers, into what is read", this.rolled));
    this.lines.replaceChildren(...lines);
  }

  line(name, values) {
    const largest = values.reduce((most, value) => Math.max(most, value), 0) || 1;
    const words = this.map.words.flatMap((word, i) => {
      const made = element(
        "span",
        { className: "word", dir: "auto", title: number(values[i]) },
        word,
      );
      made.style.setProperty("--share", `${(100 * values[i]) / largest}%`);
      return [made, " "];
    });
    const title = element("span", { className: "name" }, name);
    return element("p", { className: "method" }, title, ...words);
  }

  move(from, to) {
    const within = (place) => Math.min(Math.max(place, 0), this.size - 1);
    this.place = [within(from), within(to)];
    this.draw();
  }

  pointed(event) {
    const box = this.canvas.getBoundingClientRect();
    const place = (at, start, length) => Math.floor(((at - start) / length) * this.size);
    this.move(place(event.clientY, box.top, box.height), place(event.clientX, box.left, box.width));
  }

  pressed(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    this.move(this.place[0] + step[0], this.place[1] + step[1]);
    event.preventDefault();
  }
}

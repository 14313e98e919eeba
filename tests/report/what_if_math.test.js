"use strict";
// `node --test`: the arithmetic of the what-if by loops, grids and numbers that are known.
const test = require("node:test");
const assert = require("node:assert");
const math = require("../../attnlight/report/templates/what_if_math.js");

const near = (found, expected, tolerance = 1e-12) =>
  assert.ok(Math.abs(found - expected) <= tolerance, `${found} is not ${expected}`);
const base64 = (array) => Buffer.from(array.buffer).toString("base64");

/** Numbers from 0 to 1 of a linear congruential generator. */
function generator(state) {
  return () => (state = (1664525 * state + 1013904223) % 2 ** 32) / 2 ** 32;
}

function row(random, n, heads, classes, candidates = []) {
  const weights = new Float64Array(heads * n);
  for (let h = 0; h < heads; h++)
    weights.set(math.normalised(Float64Array.from({ length: n }, () => random() ** 3)), h * n);
  const itemLogits = Float32Array.from({ length: heads * n * classes }, () => 4 * random() - 2);
  const probabilities = math.softmax(math.readLogits(weights, itemLogits, classes));
  return { n, heads, classes, weights, itemLogits, probabilities, candidates };
}

function slowDivergence(a, w) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) {
    const mean = (a[i] + w[i]) / 2;
    if (a[i] > 0) sum += (a[i] * Math.log(a[i] / mean)) / 2;
    if (w[i] > 0) sum += (w[i] * Math.log(w[i] / mean)) / 2;
  }
  return sum;
}

test("arrays in base64", () => {
  const singles = Float32Array.from([0, -1.5, 3e-8, NaN]);
  assert.deepStrictEqual(math.floats(base64(singles)), singles);
  const codes = Uint16Array.from([
    0x0000, 0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x3555,
  ]);
  const known = [0, 1, -2, 2 ** -24, 65504, Infinity, -Infinity, NaN, 0.333251953125];
  assert.deepStrictEqual([...math.halves(base64(codes), 1)], known);
  assert.deepStrictEqual([...math.halves(base64(codes.slice(1, 3)), 2.5)], [2.5, -5]);
});

test("predictions by hand", () => {
  const logits = math.readLogits([0.25, 0.75], [0, 4, 0, 8], 2);
  assert.deepStrictEqual([...logits], [0, 7]);
  const [low, high] = math.softmax([1000, 1000 + Math.log(3)]);
  near(low, 0.25);
  near(high, 0.75);
  near(math.totalVariation([0.2, 0.8], [0.5, 0.5]), 0.3);
  near(math.entropy([0.5, 0.5, 0]), Math.log(2));
});

test("a changed weight leaves the ratios of the others, and the sum", () => {
  const weights = Float64Array.from([0.1, 0.2, 0.7]);
  assert.deepStrictEqual([...math.withWeight(weights, [2], 0.4)].map((w) => w.toFixed(12)), ["0.200000000000", "0.400000000000", "0.400000000000"]); // prettier-ignore
  const erased = math.withWeight(weights, [0, 2], 0);
  assert.deepStrictEqual([...erased], [0, 1, 0]);
  assert.deepStrictEqual([...math.withWeight(Float64Array.from([1, 0, 0]), [0], 0)], [0, 0.5, 0.5]);
  assert.deepStrictEqual([...math.withWeight(weights, [0, 1, 2], 0)], [...weights]);
  assert.deepStrictEqual([...math.fitted([0.5, 0.5], 4)], [0.5, 0.5, 0, 0]);
  assert.deepStrictEqual([...math.fitted([0, 0, 1], 2)], [0.5, 0.5]);
  const places = math.shuffledPlaces(50, generator(3));
  assert.notDeepStrictEqual(places, [...places.keys()]);
  assert.deepStrictEqual(
    [...places].sort((a, b) => a - b),
    [...places.keys()],
  );
});

test("the divergence by its definition", () => {
  const random = generator(1);
  for (let turn = 0; turn < 50; turn++) {
    const { weights } = row(random, 5, 1, 2);
    const other = row(random, 5, 1, 2).weights;
    if (turn % 2) other[turn % 5] = 0;
    const attention = math.normalised(other);
    near(math.divergence(attention, weights), slowDivergence(attention, weights));
  }
});

test("no attention on a grid is worse than the exact worst case", () => {
  const random = generator(7);
  for (let turn = 0; turn < 12; turn++) {
    const text = row(random, 3, 1, 2);
    for (const epsilon of [0.01, 0.1]) {
      const found = math.worstCase(text, epsilon);
      assert.ok(found.exact);
      const read = (a) => math.softmax(math.readLogits(a, text.itemLogits, 2));
      const moved = math.totalVariation(read(found.attention), text.probabilities);
      assert.ok(moved <= epsilon * (1 + 1e-9));
      near(found.js, slowDivergence(found.attention, text.weights));
      let [best, steps] = [0, 200];
      for (let i = 0; i <= steps; i++)
        for (let j = 0; i + j <= steps; j++) {
          const attention = [i / steps, j / steps, (steps - i - j) / steps];
          if (math.totalVariation(read(attention), text.probabilities) > epsilon) continue;
          best = Math.max(best, slowDivergence(attention, text.weights));
        }
      assert.ok(best > 0);
      assert.ok(found.js >= best - 1e-9 && found.js <= best + 0.05);
    }
  }
});

test("of several heads one is changed, and more classes give a lower bound", () => {
  const random = generator(9);
  for (const [heads, classes] of [
    [2, 2],
    [1, 5],
    [2, 3],
  ]) {
    // prettier-ignore
    const text = row(random, 6, heads, classes);
    const read = (a) => math.softmax(math.readLogits(a, text.itemLogits, classes));
    let last = -1;
    for (const epsilon of [0.001, 0.05, 0.3, 1]) {
      const found = math.worstCase(text, epsilon);
      assert.ok(found.exact || (classes > 2 && epsilon < 1));
      assert.ok(math.totalVariation(read(found.attention), text.probabilities) <= epsilon + 1e-7);
      near(math.headsDivergence(found.attention, text.weights, heads), found.js);
      const changed = [...found.attention.keys()].filter(
        (i) => found.attention[i] !== text.weights[i],
      );
      assert.strictEqual(new Set(changed.map((i) => Math.floor(i / 6))).size, 1);
      assert.ok(found.js >= last);
      last = found.js;
    }
    assert.ok(last > 0.3);
  }
});

test("a readout that is not affine has the stored attentions", () => {
  const random = generator(4);
  const text = row(random, 4, 1, 3);
  const other = row(random, 4, 1, 3);
  const p = text.probabilities;
  const shifted = [p[0] - 0.05, p[1] + 0.05, p[2]];
  const candidates = [{ weights: other.weights, probabilities: shifted }];
  const opaque = { ...text, itemLogits: null, candidates };
  assert.strictEqual(math.worstCase(opaque, 0.04).js, 0);
  const found = math.worstCase(opaque, 0.06);
  near(found.js, slowDivergence(other.weights, text.weights));
  assert.deepStrictEqual([found.exact, found.attention], [false, other.weights]);
});

test("the log odds of words alone", () => {
  const text = { n: 2, heads: 1, classes: 3, itemLogits: [0, 1, 2, 3, 0, 0] };
  const [first, second] = math.aloneOdds(text, 2);
  near(first, 2 - Math.log(1 + Math.exp(1)));
  near(second, -Math.log(Math.exp(3) + 1));
});

test("a class that is not allowed counts for nothing", () => {
  const weights = Float64Array.from([0.5, 0.3, 0.2]);
  const pairs = [1, -1, 0, 0.5, -2, 2];
  const itemLogits = Float64Array.from(pairs.flatMap((z, i) => (i % 2 ? [z, -1e4] : [z])));
  const probabilities = math.softmax(math.readLogits(weights, itemLogits, 3));
  const three = { n: 3, heads: 1, classes: 3, weights, itemLogits, probabilities, candidates: [] };
  const two = {
    ...three,
    classes: 2,
    itemLogits: Float64Array.from(pairs),
    probabilities: probabilities.slice(0, 2),
  };
  const [found, expected] = [math.worstCase(three, 0.05), math.worstCase(two, 0.05)];
  assert.ok(found.exact);
  near(found.js, expected.js);
});

test("rollout is a product of matrices", () => {
  const random = generator(5);
  const [layers, heads, n] = [3, 2, 4];
  const weights = new Float32Array(layers * heads * n * n);
  for (let start = 0; start < weights.length; start += n)
    weights.set(math.normalised(Float64Array.from({ length: n }, random)), start);
  const empty = (1 * heads * n + 2) * n; // a row without attention, in both heads of a layer
  for (const place of [empty, empty + n * n]) weights.fill(0, place, place + n);
  let product = Array.from({ length: n }, (_, i) =>
    Array.from({ length: n }, (_, j) => +(i === j)),
  );
  for (let layer = 0; layer < layers; layer++) {
    const mixed = product.map((_, q) => {
      const mean = Array.from({ length: n }, (_, k) =>
        (weights[((layer * heads) * n + q) * n + k] + weights[((layer * heads + 1) * n + q) * n + k]) / 2); // prettier-ignore
      const none = mean.every((weight) => weight === 0);
      return mean.map((weight, k) => (none ? +(q === k) : (weight + +(q === k)) / 2));
    });
    product = mixed.map((row) =>
      row.map((_, k) => row.reduce((sum, weight, q) => sum + weight * product[q][k], 0)),
    );
  }
  const read = [0.25, 0, 0.75, 0];
  const found = math.rolledOut(read, weights, [layers, heads, n]);
  for (let k = 0; k < n; k++) near(found[k], 0.25 * product[0][k] + 0.75 * product[2][k], 1e-6);
});

"use strict";
// Attention, predictions and worst cases of a text, and how they are stored: no page, no state.
// A row has n items, weights (heads * n), itemLogits (heads * n * classes) or null, its own
// probabilities, and candidates: other attentions of the record with their probabilities.

const LN2 = Math.log(2);
const NOT_ALLOWED = -5000; // half of the logit of a class that a text may not be answered with

function bytes(text) {
  const binary = atob(text);
  const array = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) array[i] = binary.charCodeAt(i);
  return array;
}

const floats = (text) => new Float32Array(bytes(text).buffer);

/** Numbers in half precision, times a scale. */
function halves(text, scale) {
  return Float32Array.from(new Uint16Array(bytes(text).buffer), (code) => {
    const exponent = (code >> 10) & 31;
    const fraction = code & 1023;
    if (exponent === 31) return fraction ? NaN : code >> 15 ? -Infinity : Infinity;
    const size = exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction;
    return (code >> 15 ? -size : size) * scale;
  });
}

function softmax(logits) {
  const highest = Math.max(...logits);
  const powers = Array.from(logits, (logit) => Math.exp(logit - highest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/** Logits: the sum over heads and items of weights times item logits. */
function readLogits(weights, itemLogits, classes) {
  const logits = new Float64Array(classes);
  for (let i = 0; i < weights.length; i++)
    for (let c = 0; c < classes; c++) logits[c] += weights[i] * itemLogits[i * classes + c];
  return logits;
}

const totalVariation = (p, q) => p.reduce((sum, value, c) => sum + Math.abs(value - q[c]), 0) / 2;

const entropyTerm = (value) => (value > 0 ? -value * Math.log(value) : 0);
const entropy = (weights) => weights.reduce((sum, value) => sum + entropyTerm(value), 0);

/** By how much an item's term of 2 JS grows when its share rises from 0. */
function gain(share, weight) {
  const total = share + weight;
  const first = share > 0 ? share * Math.log((2 * share) / total) : 0;
  return weight > 0 ? first + weight * Math.log(weight / total) : first;
}

/** Jensen-Shannon divergence of attention from weights, in nats; both sum to 1. */
function divergence(attention, weights) {
  let sum = 0;
  for (let i = 0; i < weights.length; i++) sum += gain(attention[i], weights[i]) + weights[i] * LN2;
  return Math.min(Math.max(sum / 2, 0), LN2);
}

const ofOneItem = (weight) => Math.min(Math.max((LN2 + gain(1, weight)) / 2, 0), LN2);

function normalised(weights) {
  const sum = weights.reduce((a, b) => a + b, 0);
  return Float64Array.from(weights, (weight) => (sum > 0 ? weight / sum : 1 / weights.length));
}

/** Weights in which some items have the value, of all together, and the others the rest. */
function withWeight(weights, items, value) {
  const chosen = new Set(items);
  const rest = weights.reduce((sum, weight, i) => sum + (chosen.has(i) ? 0 : weight), 0);
  const others = weights.length - chosen.size;
  if (!others) return weights.slice();
  return Float64Array.from(weights, (weight, i) => {
    if (chosen.has(i)) return value / chosen.size;
    return rest > 0 ? (weight / rest) * (1 - value) : (1 - value) / others;
  });
}

/** The weights of another text on n items: cut or padded with zeros, and normalised. */
const fitted = (weights, n) =>
  normalised(Float64Array.from({ length: n }, (_, i) => (i < weights.length ? weights[i] : 0)));

/** A random order of 0 to n - 1, by a function that draws from 0 to 1. */
function shuffledPlaces(n, random) {
  const places = Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [places[i], places[j]] = [places[j], places[i]];
  }
  return places;
}

/** The share of the heads' items in an array of all heads. */
const ofHead = (values, head, heads) =>
  values.subarray((head * values.length) / heads, ((head + 1) * values.length) / heads);

/** Largest divergence of any head: candidates of a worst case change one head alone. */
function headsDivergence(attention, weights, heads) {
  let largest = 0;
  for (let h = 0; h < heads; h++) {
    const own = normalised(ofHead(weights, h, heads));
    largest = Math.max(largest, divergence(ofHead(attention, h, heads), own));
  }
  return largest;
}

/** Weights of one head, and for each item the allowed logits if that head saw it alone. */
function headProblem(row, head) {
  const { n, heads, classes, itemLogits } = row;
  const all = Float64Array.from({ length: heads }, () => 0).map((_, h) => h);
  const own = Array.from(all, (h) => normalised(ofHead(row.weights, h, heads)));
  const parts = own.map((w, h) => readLogits(w, ofHead(itemLogits, h, heads), classes));
  const total = parts.reduce((sum, part) => sum.map((value, c) => value + part[c]));
  const kept = [...total.keys()].filter((c) => total[c] > NOT_ALLOWED);
  const items = Array.from({ length: n }, (_, i) =>
    kept.map((c) => itemLogits[(head * n + i) * classes + c] + total[c] - parts[head][c]),
  );
  return { weights: own[head], items, prediction: softmax(kept.map((c) => total[c])) };
}

/** Smallest and largest log(p / q) of predictions within epsilon of one with p and q. */
const logRatioBounds = (p, q, epsilon) => [
  Math.log(Math.max(p - epsilon, 0)) - Math.log(q + epsilon),
  Math.log(p + epsilon) - Math.log(Math.max(q - epsilon, 0)),
];

/**
 * The attention of largest divergence from weights whose mean of e is in bounds.
 *
 * The divergence is convex, so that it is largest at a vertex: all on one item, or on two items
 * with the mean at a bound. No mixture has more than the chord between its items.
 */
function exactWorstCase(weights, e, bounds) {
  const single = Array.from(weights, ofOneItem);
  let [best, shares] = [-1, null];
  e.forEach((value, i) => {
    if (value < bounds[0] || value > bounds[1] || single[i] <= best) return;
    [best, shares] = [single[i], [[i, 1]]];
  });
  const order = [...single.keys()].sort((i, j) => single[j] - single[i]);
  for (const bound of bounds.filter(Number.isFinite)) {
    const above = order.filter((i) => e[i] > bound);
    for (const i of order.filter((item) => e[item] < bound))
      for (const j of above) {
        if (Math.max(single[i], single[j]) <= best) break;
        const share = (bound - e[i]) / (e[j] - e[i]);
        if ((1 - share) * single[i] + share * single[j] <= best) continue;
        const js = (LN2 + gain(1 - share, weights[i]) + gain(share, weights[j])) / 2;
        if (js > best) [best, shares] = [js, [[i, 1 - share], [j, share]]]; // prettier-ignore
      }
  }
  if (!shares) return { attention: weights, js: 0 };
  const attention = new Float64Array(weights.length);
  for (const [i, share] of shares) attention[i] = share;
  return { attention, js: divergence(attention, weights) };
}

/** The best attention found by moving towards one item at a time, as far as epsilon permits. */
function searchedWorstCase({ weights, items, prediction }, epsilon, starts) {
  const read = (attention) => readLogits(attention, items.flat(), prediction.length);
  const distance = (logits) => totalVariation(softmax(logits), prediction);
  let best = { attention: weights, js: 0 };
  for (let attention of [weights, ...starts]) {
    let base = Array.from(read(attention));
    if (distance(base) > epsilon + 1e-7) continue;
    for (let js = divergence(attention, weights), round = 0; round < 3; round++) {
      if (js > best.js) best = { attention, js };
      let next = null;
      items.forEach((item, i) => {
        const at = (share) => base.map((logit, c) => (1 - share) * logit + share * item[c]);
        let [low, high] = distance(item) <= epsilon ? [1, 1] : [0, 1];
        for (let turn = 0; turn < 20 && low < 1; turn++) {
          const middle = (low + high) / 2;
          if (distance(at(middle)) <= epsilon) low = middle;
          else high = middle;
        }
        const moved = attention.map((value, k) => (1 - low) * value + (k === i ? low : 0));
        const found = divergence(moved, weights);
        if (found > js + 1e-9) [js, next] = [found, { moved, logits: at(low) }];
      });
      if (!next) break;
      [attention, base] = [next.moved, next.logits];
    }
  }
  return best;
}

/** The stored attention of largest divergence whose stored prediction is within epsilon. */
function storedWorstCase(row, epsilon) {
  let best = { attention: row.weights, js: 0, exact: false, head: 0 };
  for (const { weights, probabilities } of row.candidates) {
    if (totalVariation(probabilities, row.probabilities) > epsilon + 1e-6) continue;
    const js = headsDivergence(weights, row.weights, row.heads);
    if (js > best.js) best = { ...best, attention: weights, js };
  }
  return best;
}

/**
 * The most different attention that moves the prediction by at most epsilon.
 *
 * Of several heads one is changed, the one that can change most. It is exact for two classes, and
 * where all attention on the item of least weight keeps the prediction; else a lower bound.
 */
function worstCase(row, epsilon) {
  if (!row.itemLogits) return storedWorstCase(row, epsilon);
  let best = { attention: row.weights, js: 0, head: 0 };
  let exact = true;
  for (let head = 0; head < row.heads; head++) {
    const problem = headProblem(row, head);
    const { weights, items, prediction } = problem;
    const lightest = new Float64Array(row.n);
    lightest[argmax(Array.from(weights, ofOneItem))] = 1;
    let found;
    if (prediction.length === 2) {
      const bounds = logRatioBounds(prediction[1], prediction[0], epsilon);
      const margins = items.map(([first, second]) => second - first);
      found = exactWorstCase(weights, margins, bounds);
    } else if (totalVariation(softmax(items[lightest.indexOf(1)]), prediction) <= epsilon) {
      found = { attention: lightest, js: divergence(lightest, weights) };
    } else {
      const starts = row.candidates.map((other) => ofHead(other.weights, head, row.heads));
      found = searchedWorstCase(problem, epsilon, starts.map(normalised));
      exact = false;
    }
    if (found.js > best.js) best = { ...found, head };
  }
  const attention = Float64Array.from(row.weights);
  attention.set(best.attention.length === row.n ? best.attention : [], best.head * row.n);
  return { ...best, attention: best.js ? attention : row.weights, exact };
}

/** For each item the log odds of a class if all heads saw that item alone. */
function aloneOdds({ n, heads, classes, itemLogits }, target) {
  return Array.from({ length: n }, (_, i) => {
    const logits = new Float64Array(classes);
    for (let h = 0; h < heads; h++)
      for (let c = 0; c < classes; c++) logits[c] += itemLogits[(h * n + i) * classes + c];
    const others = [...logits].filter((_, c) => c !== target);
    const highest = Math.max(...others);
    const sum = others.reduce((total, logit) => total + Math.exp(logit - highest), 0);
    return logits[target] - highest - Math.log(sum);
  });
}

/** A part of a text: what stands before it, its words, and of how many items they are. */
function partOf(line) {
  if (line[0] !== "\t") return { before: " ", text: line, count: 1 };
  const [, count, before, text] = line.split("\t");
  return { before, text, count: Number(count) };
}

/** Decode the arrays of a run's texts, and note where each text begins. */
function decoded(set) {
  const rows = set.texts.map((text) => text.split("\n").map(partOf));
  const lengths = rows.map((parts) => parts.reduce((sum, { count }) => sum + count, 0));
  const starts = [0];
  for (const length of lengths) starts.push(starts.at(-1) + length);
  const arrays = {};
  for (const name of ["probabilities", "attention", "item_logits", "candidates"])
    arrays[name] = floats(set[name] || "");
  const places = new Map(set.keys.map(([index, position], at) => [`${index}:${position}`, at]));
  const scores = Object.entries(set.scores).map(([name, pair]) => [name, halves(...pair)]);
  const predictions = floats(set.candidate_probabilities || "");
  return { ...set, ...arrays, rows, lengths, starts, places, scores, predictions, flags: bytes(set.flags) }; // prettier-ignore
}

/** One text of a run as the mathematics read it, with its words and scores. */
function rowOf(set, at) {
  const { heads, lengths, starts, classes } = set;
  const [n, start, count] = [lengths[at], starts[at], classes.length];
  const part = (array, each) => array.subarray(start * each, (start + n) * each);
  const probabilities = set.probabilities.subarray(at * count, (at + 1) * count);
  const lists = set.candidates.length ? 3 : 0;
  const candidates = Array.from({ length: lists }, (_, k) => ({
    weights: ofHead(part(set.candidates, heads * lists), k, lists),
    probabilities: set.predictions.subarray((at * lists + k) * count, (at * lists + k + 1) * count),
  }));
  return {
    ...{ n, heads, classes: count, probabilities, candidates, parts: set.rows[at] },
    weights: Float64Array.from(part(set.attention, heads)),
    itemLogits: set.item_logits.length ? part(set.item_logits, heads * count) : null,
    flags: part(set.flags, 1),
  };
}

/** Shares (n) of tokens in what is read of the last states, each layer's attention mixing them by half. */
function rolledOut(read, weights, [layers, heads, n]) {
  let shares = Float64Array.from(read);
  for (let layer = layers - 1; layer >= 0; layer--) {
    const mean = meanOfHeads(weights.subarray(layer * heads * n * n, (layer + 1) * heads * n * n), heads); // prettier-ignore
    const next = Float64Array.from(shares);
    for (let q = 0; q < n; q++) {
      const row = mean.subarray(q * n, (q + 1) * n);
      const total = row.reduce((a, b) => a + b, 0);
      if (!total) continue; // without attention all stays
      next[q] -= shares[q] / 2;
      for (let k = 0; k < n; k++) next[k] += (shares[q] * row[k]) / total / 2;
    }
    shares = next;
  }
  return shares;
}

const meanOfHeads = (weights, heads) => {
  const n = weights.length / heads;
  return Float64Array.from({ length: n }, (_, i) => {
    let sum = 0;
    for (let h = 0; h < heads; h++) sum += weights[h * n + i];
    return sum / heads;
  });
};

if (typeof module !== "undefined")
  module.exports = {
    ...{ aloneOdds, argmax, decoded, divergence, entropy, fitted, floats, halves, headsDivergence },
    ...{
      normalised,
      readLogits,
      rolledOut,
      rowOf,
      shuffledPlaces,
      softmax,
      totalVariation,
      withWeight,
      worstCase,
    },
  };

"use strict";
// What the page computes of all texts of a payload: node what_if_answers.js PAYLOAD EPSILON,...
const fs = require("node:fs");
const math = require("../../attnlight/report/templates/what_if_math.js");

const [[{ sets }], epsilons] = [JSON.parse(fs.readFileSync(process.argv[2])), process.argv[3]];
const set = math.decoded(sets[0]);
const answers = set.keys.map((key, at) => {
  const row = math.rowOf(set, at);
  const other = row.weights.map((_, i) => 1 + ((i % row.n) % 3));
  for (let h = 0; h < row.heads; h++)
    other.set(math.normalised(other.subarray(h * row.n, (h + 1) * row.n)), h * row.n);
  const read = (weights) =>
    row.itemLogits ? [...math.readLogits(weights, row.itemLogits, row.classes)] : null;
  const worst = epsilons.split(",").map((epsilon) => {
    const { attention, js, head, exact } = math.worstCase(row, Number(epsilon));
    return { attention: [...attention], js, head, exact };
  });
  return { key, own: read(row.weights), other: read(other), worst };
});
process.stdout.write(JSON.stringify(answers));

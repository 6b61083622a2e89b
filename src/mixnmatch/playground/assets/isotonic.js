// Isotonic regression of 0/1 labels as a step function, one for each class or one for all entries (IRM).

import { firstAbove } from "./numbers.js";

// The paper's epsilon: what strictness adds to the slope everywhere.
const STRICTNESS = 1e-9;
// Computed probabilities round differently on other machines and in Python: those in one of these cells, about 2e-11 of
// their size wide, are ties. As in mixnmatch/maps/ties.py a cell holds all numbers with the same first bits once they
// are rounded, and all below about 1e-289 are in one with 0.
const DROPPED = 17n, HALF = 1n << (DROPPED - 1n);
const scratch = new Float64Array(1), scratchBits = new BigInt64Array(scratch.buffer);
const bitsOf = (value) => {
  scratch[0] = Math.abs(value);
  return scratchBits[0];
};
const LEAST = bitsOf(2 ** -960) - HALF;

// A piecewise linear function: values[k] + slopes[k] (x - knots[k]) from knot k on, `left` before the first.
//
// `computed` says that the scores come out of a softmax or a division rather than from the file.
export const fitSteps = (scores, positive, computed) => {
  const order = Float64Array.from(scores).sort(); // all scores
  const ofPositives = scores.filter((_, k) => positive[k]);
  const own = Float64Array.from(computed ? ofPositives.map(lowerEdge) : ofPositives).sort();
  if (own.length === 0) return { knots: [0], values: [0], slopes: [0], left: 0 }; // a class without positives
  // A block of the solution can only start at a positive. Groups: a positive, its ties, and all up to the next one.
  const starts = [], positives = [], weights = [];
  for (let k = 0; k < own.length; ) {
    const next = firstAbove(own, own[k], k);
    const from = firstBelowOrAt(order, own[k]);
    const to = next < own.length ? firstBelowOrAt(order, own[next]) : order.length;
    starts.push(own[k]);
    positives.push(next - k);
    weights.push(to - from);
    k = next;
  }
  const blocks = poolAdjacentViolators(positives, weights);
  const values = blocks.map((block) => Math.min(block.mean, 1));
  return {
    knots: blocks.map((block) => starts[block.first]),
    values,
    slopes: blocks.map(() => 0),
    left: order[0] < starts[0] ? 0 : values[0], // below all scores nothing is known: the first value goes on
  };
};

// How many of the sorted scores are below `value`.
const firstBelowOrAt = (sorted, value) => {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
};

// The lower edge of the cell that a number is in.
const lowerEdge = (value) => {
  const bits = (((bitsOf(value) + HALF) >> DROPPED) << DROPPED) - HALF;
  if (bits < LEAST) return 0;
  scratchBits[0] = bits;
  return scratch[0];
};

// Blocks of the non-decreasing means with the least squared error; blocks of equal means are one.
//
// Means are updated in the order of SciPy's isotonic_regression (forwards as far as possible, then backwards): where
// means are equal but for rounding it decides, and both libraries should decide alike.
const poolAdjacentViolators = (positives, weights) => {
  const means = positives.map((count, k) => count / weights[k]), blocks = [];
  for (let k = 0; k < means.length; k++) {
    const block = { first: k, mean: means[k], weight: weights[k] };
    const last = blocks[blocks.length - 1];
    if (last && last.mean >= block.mean) {
      blocks.pop();
      let total = last.weight * last.mean + block.weight * block.mean;
      const add = (mean, weight) => {
        total += weight * mean;
        block.weight += weight;
        block.mean = total / block.weight;
      };
      block.first = last.first;
      block.weight += last.weight;
      block.mean = total / block.weight;
      while (k + 1 < means.length && block.mean >= means[k + 1]) {
        k++;
        add(means[k], weights[k]);
      }
      while (blocks.length && blocks[blocks.length - 1].mean >= block.mean) {
        const before = blocks.pop();
        add(before.mean, before.weight);
        block.first = before.first;
      }
    }
    blocks.push(block);
  }
  return blocks;
};

// The paper's third step: g(a) + epsilon a.
export const madeStrict = ({ knots, values, slopes, left }) => {
  const first = knots[0] === 0;
  const at = first ? knots : [0, ...knots], found = first ? values : [left, ...values];
  return {
    knots: at,
    values: found.map((value, k) => value + STRICTNESS * at[k]),
    slopes: (first ? slopes : [0, ...slopes]).map((slope) => slope + STRICTNESS),
    left,
  };
};

export const valueOf = ({ knots, values, slopes, left }, score) => {
  const x = Math.min(Math.abs(score), 1);
  const k = firstAbove(knots, x) - 1;
  return k < 0 ? left : values[k] + slopes[k] * (x - knots[k]);
};

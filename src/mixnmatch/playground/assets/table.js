// A checked table of scores and labels, and the forms in which maps and measures read it.

import { InputError, SMALLEST_PROBABILITY, highest, logSoftmaxRows, lowest, softmaxRows, sum, winner } from "./numbers.js";

// How far a row of probabilities may be from summing to 1 without a warning; rows this close are taken as given.
const USUAL_OFF = 1e-4, AS_GIVEN = 1e-9;
// Rows further off were rounded to a few decimals: they are renormalised with a warning, up to here.
const ROUNDED = 1e-3, MOST_OFF = 5e-2;
// Logits this far behind the largest of their row are as far behind as any.
const WIDEST = 1e9;
// So many rows of "logits" are compared with probabilities, which they are sometimes mistaken for.
const ROWS_TO_COMPARE = 10;

// Scores are row-major, n x L. A single column of scores, of the positive class (`vector`), has become two columns.
export class Table {
  constructor({ scores, width, logits, labels, names, columns = null, offSimplex = false, vector = false }) {
    Object.assign(this, { scores, width, logits, labels, names, columns, offSimplex, vector });
    this.n = labels.length;
  }

  // The rows of these numbers, in this order.
  rows(indices) {
    const scores = new Float64Array(indices.length * this.width);
    const labels = new Int32Array(indices.length);
    indices.forEach((row, k) => {
      scores.set(this.scores.subarray(row * this.width, (row + 1) * this.width), k * this.width);
      labels[k] = this.labels[row];
    });
    return new Table({ ...this, scores, labels });
  }

  // About `most` rows spread evenly over the table, for a cheap look; a table hardly larger than that is itself.
  sampled(most) {
    const step = Math.floor(this.n / Math.min(most, Math.max(Math.floor(2 ** 24 / this.width), 64)));
    if (step < 2) return this;
    const indices = [];
    for (let row = 0; row < this.n; row += step) indices.push(row);
    return this.rows(indices);
  }

  get probabilities() {
    this.cachedProbabilities ??= this.logits ? softmaxRows(this.scores, this.width) : this.normalised();
    return this.cachedProbabilities;
  }

  // Probabilities as given, but for rows that do not sum to 1.
  normalised() {
    if (!this.offSimplex) return this.scores;
    const out = Float64Array.from(this.scores);
    for (let start = 0; start < out.length; start += this.width) {
      const row = out.subarray(start, start + this.width);
      const total = sum(row);
      if (Math.abs(total - 1) > AS_GIVEN) for (let k = 0; k < row.length; k++) row[k] /= total;
    }
    return out;
  }

  // Logarithms of the probabilities up to a constant in each row: what temperature scaling acts on.
  logScores(floor) {
    return this.logits ? this.scores : this.scores.map((p) => Math.log(Math.max(p, floor, SMALLEST_PROBABILITY)));
  }

  get logProbabilities() {
    return this.logits ? logSoftmaxRows(this.scores, this.width) : this.probabilities.map(Math.log);
  }

  // Logarithm of the least probability that is read. Logits need none, unless the map was fitted with one.
  logFloor(floor) {
    return this.logits && floor === 0 ? -Infinity : Math.log(Math.max(floor, SMALLEST_PROBABILITY));
  }

  // What a probability of 0 is read as in logarithms: half of the smallest positive one. Logits need none.
  probabilityFloor() {
    if (this.logits) return 0;
    let smallest = Infinity;
    for (const p of this.scores) if (p > 0 && p < smallest) smallest = p;
    return Math.max(smallest / 2, SMALLEST_PROBABILITY);
  }

  winnerOf(row) {
    return winner(this.scores, row * this.width, this.width);
  }

  classCounts() {
    const counts = new Float64Array(this.width);
    for (const label of this.labels) counts[label]++;
    return counts;
  }
}

const LOGITS_HINT = 'if these are logits, choose "logits" under "Scores in the file are"';

// A table of checked scores, and warnings. `scores` is row-major with one column, of the positive class, or L.
export const checkedTable = ({ scores, width, logits, labels, names, columns = null }) => {
  const warnings = [];
  let offSimplex = false;
  for (let k = 0; k < scores.length; k++) {
    if (!Number.isFinite(scores[k])) {
      const what = Number.isNaN(scores[k]) ? "NaN" : "an infinity (or a number too large for a float)";
      throw new InputError(`row ${Math.floor(k / width)} of the scores holds ${what}; drop or repair such rows first`);
    }
  }
  if (logits) {
    scores = narrowed(scores, width);
    if (looksLikeProbabilities(scores, width)) {
      warnings.push(
        "All rows of the scores lie in [0, 1] and sum to 1, so they are probably probabilities, but they are read as " +
          'logits. For probabilities choose "probabilities" under "Scores in the file are".',
      );
    }
  } else {
    const furthest = checkProbabilities(scores, width);
    if (furthest > USUAL_OFF) {
      warnings.push(
        `Some rows of the scores sum to 1 only to within ${furthest.toPrecision(2)}, as probabilities do that were ` +
          "rounded to a few decimals; they are renormalised. Save more decimals to keep all that the model says.",
      );
    }
    offSimplex = furthest > AS_GIVEN;
  }
  const vector = width === 1;
  if (vector) {
    const both = new Float64Array(2 * scores.length);
    scores.forEach((score, row) => both.set([logits ? 0 : 1 - score, score], 2 * row));
    [scores, width, offSimplex] = [both, 2, false];
  }
  return { table: new Table({ scores, width, logits, labels, names, columns, offSimplex, vector }), warnings };
};

// How far the furthest row of probabilities is from summing to 1; an error for the first row that is no such row.
const checkProbabilities = (scores, width) => {
  const tolerance = Math.max(USUAL_OFF, rounding(width));
  let furthest = 0;
  for (let row = 0; row * width < scores.length; row++) {
    const entries = scores.subarray(row * width, (row + 1) * width);
    const low = lowest(entries);
    if (low < 0) throw new InputError(`row ${row} of the scores has a negative entry (${low}); ${LOGITS_HINT}`);
    if (width === 1) {
      if (entries[0] > 1) {
        throw new InputError(`row ${row} of the scores is ${entries[0]}, not a probability; ${LOGITS_HINT}`);
      }
      continue;
    }
    const off = Math.abs(sum(entries) - 1);
    if (!(off <= tolerance)) {
      throw new InputError(`row ${row} of the scores sums to ${+sum(entries).toPrecision(6)}, not to 1; ${LOGITS_HINT}`);
    }
    furthest = Math.max(furthest, off);
  }
  return furthest;
};

// How far rows of probabilities that were cut to three decimals are from summing to 1 at most.
const rounding = (width) => Math.min(ROUNDED * width, MOST_OFF);

// Logits with no number beyond WIDEST; the order of every row stays as it is.
const narrowed = (scores, width) => {
  if (!scores.some((score) => Math.abs(score) > WIDEST)) return scores;
  if (width === 1) return scores.map((score) => Math.min(Math.max(score, -WIDEST), WIDEST));
  const out = Float64Array.from(scores);
  for (let start = 0; start < out.length; start += width) {
    const row = out.subarray(start, start + width);
    if (!row.some((score) => Math.abs(score) > WIDEST)) continue;
    const top = highest(row);
    for (let k = 0; k < width; k++) row[k] = Math.max(row[k] - top, -WIDEST);
  }
  return out;
};

const looksLikeProbabilities = (scores, width) => {
  if (width < 2 || scores.length < ROWS_TO_COMPARE * width) return false;
  for (let start = 0; start < scores.length; start += width) {
    const row = scores.subarray(start, start + width);
    if (lowest(row) < -rounding(width) || Math.abs(sum(row) - 1) > rounding(width)) return false;
  }
  return true;
};

// Fold of a row number, by a 64-bit mix so that the order of the file carries nothing.
export const foldOf = (row, folds) => {
  const mask = (1n << 64n) - 1n;
  let h = (BigInt(row) + 0x632be59bd9b4e019n) & mask;
  h = ((h ^ (h >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
  h = ((h ^ (h >> 27n)) * 0x94d049bb133111ebn) & mask;
  return Number((h ^ (h >> 31n)) % BigInt(folds));
};

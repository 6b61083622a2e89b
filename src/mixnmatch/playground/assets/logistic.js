// Platt and beta scaling: p = sigmoid(theta . features) of each class against the rest, slopes positive.

import { clip, highest, lowest, sum, winner } from "./numbers.js";
import { boundedStep, newton } from "./solve.js";

// Rows of a first look, from which the passes over many more rows start.
const LOOK = 4096, MUCH_MORE = 4;
// Slopes stay above this over the size of what they are of, so that the function increases strictly.
const SMALLEST_SLOPE = 1e-9;
// Sums of exponentials below this have lost digits: they are taken relative to the largest.
const UNDERFLOW = 1e-290;

// Classes that have a problem of their own: the positive one of two, all of more.
export const problemClasses = (width) => (width === 2 ? [1] : Array.from({ length: width }, (_, k) => k));

// Log p and log(1 - p) of every entry, neither below the logarithm of the floor.
const logOddsParts = (table, floor) => {
  const { width, n } = table, lowest = table.logFloor(floor);
  const logP = Float64Array.from(table.logProbabilities);
  if (width === 2) {
    for (let k = 0; k < logP.length; k++) logP[k] = Math.max(logP[k], lowest);
    return { logP, logNot: logP.map((_, k) => logP[k ^ 1]) };
  }
  const p = logP.map((value) => Math.exp(value)), logNot = p.map((value) => Math.log1p(-Math.min(value, 1)));
  for (let row = 0; row < n; row++) {
    const start = row * width, top = start + winner(p, start, width);
    if (p[top] <= 0.5) continue;
    // Next to 1 the difference 1 - p has no digits left: there it is the sum of the other entries.
    let rest = 0, second = -Number.MAX_VALUE;
    for (let k = start; k < start + width; k++) {
      if (k === top) continue;
      rest += p[k];
      second = Math.max(second, logP[k]);
    }
    if (rest < UNDERFLOW && lowest < Math.log(UNDERFLOW)) {
      let scaled = 0;
      for (let k = start; k < start + width; k++) if (k !== top) scaled += Math.exp(logP[k] - second);
      logNot[top] = second + Math.log(scaled);
    } else {
      logNot[top] = Math.log(rest);
    }
  }
  const floored = (values) => values.map((value) => Math.max(value, lowest));
  return { logP: floored(logP), logNot: floored(logNot) };
};

// Features of all problems: for each class a list of columns, one number a row.
const features = (kind, table, floor) => {
  const { width, n } = table;
  if (kind === "platt" && width === 2 && table.logits) {
    // With two classes the log-odds are the lead of the second one.
    const lowest = table.logFloor(floor);
    const lead = (row) => clip(table.scores[2 * row + 1] - table.scores[2 * row], lowest, -lowest);
    return [[Float64Array.from({ length: n }, (_, row) => lead(row))]];
  }
  const { logP, logNot } = logOddsParts(table, floor);
  const column = (of, k) => Float64Array.from({ length: n }, (_, row) => of(row * width + k));
  return problemClasses(width).map((k) =>
    kind === "platt"
      ? [column((at) => logP[at] - logNot[at], k)]
      : [column((at) => logP[at], k), column((at) => -logNot[at], k)]);
};

// Total log loss of a logistic fit to targets, with gradient and curvature; the intercept comes last. A second feature
// that is not there counts as zero: one loop for both maps, without arrays inside, is several times faster.
const statistic = (columns, centre, positive, targets) => (theta) => {
  const [first, second = null] = columns, a = theta[0], b = second ? theta[1] : 0, c = theta[theta.length - 1];
  let value = 0, ga = 0, gb = 0, gc = 0, aa = 0, ab = 0, ac = 0, bb = 0, bc = 0, cc = 0;
  for (let row = 0; row < positive.length; row++) {
    const f = first[row] - centre[0], g = second ? second[row] - centre[1] : 0, x = a * f + b * g + c;
    const target = targets[positive[row]], e = Math.exp(-Math.abs(x)), r = 1 / (1 + e), p = x >= 0 ? r : e * r;
    const slope = p - target, curve = p * (1 - p), scaled = curve * f;
    value += Math.max(x, 0) - x * target + Math.log1p(e);
    ga += slope * f;
    gb += slope * g;
    gc += slope;
    aa += scaled * f;
    ab += scaled * g;
    ac += scaled;
    bb += curve * g * g;
    bc += curve * g;
    cc += curve;
  }
  return second
    ? { theta, value, gradient: [ga, gb, gc], curvature: [[aa, ab, ac], [ab, bb, bc], [ac, bc, cc]] }
    : { theta, value, gradient: [ga, gc], curvature: [[aa, ac], [ac, cc]] };
};

// Coefficients (slopes, then the intercept) of each problem, mean log loss of each, and the largest residual.
export const fitLogistic = (kind, table, floor) => {
  const look = table.sampled(LOOK);
  const all = features(kind, table, floor), some = look === table ? all : features(kind, look, floor);
  const fits = problemClasses(table.width).map((k, problem) =>
    fitProblem({ columns: all[problem], positive: isClass(table, k) }, { columns: some[problem], positive: isClass(look, k) }));
  return {
    coefficients: fits.map((fit) => fit.theta),
    losses: fits.map((fit) => fit.value / table.n),
    residual: highest(fits.map((fit) => fit.residual)),
  };
};

const isClass = (table, k) => Uint8Array.from(table.labels, (label) => (label === k ? 1 : 0));

const fitProblem = (full, look) => {
  const n = full.positive.length, positives = sum(full.positive);
  // Platt's smoothed targets: separable data and a class without positives have a finite answer.
  const targets = [1 / (n - positives + 2), (positives + 1) / (positives + 2)];
  // Centred features keep scores that hardly differ distinct. Of features that are all the same the mean must be that
  // number, or rounding would pass for a spread.
  const centre = look.columns.map((column) => clip(sum(column) / column.length, lowest(column), highest(column)));
  const onLook = statistic(look.columns, centre, look.positive, targets);
  let { theta, lower } = startOf(onLook, look, targets, centre);
  const project = (found) => found.map((value, k) => Math.max(value, lower[k]));
  const minimise = (at, start, weight, tolerance) =>
    newton(at, at(start), (point) => boundedStep(point, lower), { weight, project, tolerance });
  const size = look.positive.length;
  if (size * MUCH_MORE <= n) theta = minimise(onLook, theta, size, 1e-4).point.theta;
  const { point, residual } = minimise(statistic(full.columns, centre, full.positive, targets), theta, n);
  const found = [...point.theta];
  found[found.length - 1] -= sum(centre.map((mean, k) => mean * found[k]));
  return { theta: found, value: point.value, residual };
};

// Parameters to start from, and lower bounds. At the base rate, whatever the score, no probability is saturated, and the
// curvature gives the scale of the features. Slopes of 1 are the better start where they have the lower loss.
const startOf = (at, look, targets, centre) => {
  const n = look.positive.length, positives = sum(look.positive);
  const rate = clip((positives * targets[1] + (n - positives) * targets[0]) / n, 1e-12, 1 - 1e-12);
  const flat = [...centre.map(() => 0), Math.log(rate / (1 - rate))];
  const { value, curvature } = at(flat), last = centre.length;
  const lower = centre.map((_, k) => {
    const size = Math.sqrt(curvature[k][k] / Math.max(curvature[last][last], 2.2250738585072014e-308));
    return SMALLEST_SLOPE / (size > 0 ? size : 1);
  });
  lower.push(-Infinity);
  const identity = [...centre.map(() => 1), sum(centre)];
  const theta = (at(identity).value < value ? identity : flat).map((found, k) => Math.max(found, lower[k]));
  return { theta, lower };
};

// Calibrated probability of each entry that has a problem, one column a problem.
export const applyLogistic = (kind, table, floor, coefficients) =>
  features(kind, table, floor).map((columns, problem) => {
    const theta = coefficients[problem];
    return columns[0].map((_, row) => {
      let x = columns[0][row] * theta[0];
      if (columns.length > 1) x += columns[1][row] * theta[1];
      return 1 / (1 + Math.exp(-(x + theta[theta.length - 1])));
    });
  });

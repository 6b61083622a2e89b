// How good probabilities are: log loss, Brier score, accuracy, calibration error (ECE), and reliability curves.

import { clip, sum, winner } from "./numbers.js";

export const BINS = 15;
// 97.5% quantile of the standard normal distribution.
const NORMAL = 1.959963984540054;

// Losses and outcomes of every sample for probabilities p. `z` is what the calibration error is about: the probability
// of the positive class of two, the confidence in the predicted class of more; `y` whether it was the true class.
export const outcomes = (table, p, { before = false } = {}) => {
  const { n, width, labels } = table;
  const made = { logLoss: new Float64Array(n), brier: new Float64Array(n), right: new Uint8Array(n),
    z: new Float64Array(n), y: new Uint8Array(n), n, width };
  // Before calibration the scores themselves say which class is predicted, and logits have exact logarithms.
  const logs = before && table.logits ? table.logProbabilities : null;
  for (let row = 0; row < n; row++) {
    const start = row * width, label = labels[row];
    const predicted = before ? table.winnerOf(row) : winner(p, start, width);
    let square = 0;
    for (let k = 0; k < width; k++) square += (p[start + k] - (k === label)) ** 2;
    made.logLoss[row] = logs ? -logs[start + label] : -Math.log(p[start + label]);
    made.brier[row] = square;
    made.right[row] = predicted === label ? 1 : 0;
    const about = width === 2 ? 1 : predicted;
    made.z[row] = Math.min(p[start + about], 1);
    made.y[row] = label === about ? 1 : 0;
  }
  return made;
};

// Losses and outcomes of several parts of the samples, one after another.
export const joined = (parts) => {
  const made = { n: parts.reduce((total, part) => total + part.n, 0), width: parts[0].width };
  for (const key of ["logLoss", "brier", "right", "z", "y"]) {
    made[key] = new parts[0][key].constructor(made.n);
    let start = 0;
    for (const part of parts) {
      made[key].set(part[key], start);
      start += part.n;
    }
  }
  return made;
};

const mean = (values) => sum(values) / values.length;

export const measures = (found) => {
  const bins = binSums(found);
  return {
    n: found.n,
    accuracy: mean(found.right),
    logLoss: mean(found.logLoss),
    brier: mean(found.brier),
    ece: histogramError(bins, found.n),
    eceByChance: errorByChance(found, bins),
    meanConfidence: mean(found.z),
    meanOutcome: mean(found.y),
  };
};

// Mean difference of a loss of the same samples, and its standard error.
export const change = (before, after) => {
  const n = before.length, difference = Float64Array.from(before, (value, k) => after[k] - value), centre = mean(difference);
  const squares = sum(difference.map((value) => (value - centre) ** 2));
  return { value: centre, standardError: n > 1 ? Math.sqrt(squares / (n - 1) / n) : NaN };
};

// Sums over bins of equal width: bin b holds b/B <= z < (b+1)/B, the last one also z = 1.
export const binSums = ({ z, y, n }) => {
  const bins = Array.from({ length: BINS }, () => ({ count: 0, confidence: 0, outcome: 0, variance: 0 }));
  for (let k = 0; k < n; k++) {
    const bin = bins[Math.min(Math.floor(z[k] * BINS), BINS - 1)];
    bin.count++;
    bin.confidence += z[k];
    bin.outcome += y[k];
    bin.variance += z[k] * (1 - z[k]);
  }
  return bins;
};

// The histogram estimate of the calibration error, sum over bins of n_b / n |mean y - mean z|.
const histogramError = (bins, n) => sum(bins.map((bin) => Math.abs(bin.outcome - bin.confidence))) / n;

// What the estimate is on average if the probabilities are calibrated: noise alone, normal in each bin.
const errorByChance = ({ n }, bins) => sum(bins.map((bin) => Math.sqrt((2 * bin.variance) / Math.PI))) / n;

// Wilson's 95% interval of a frequency p among n samples.
const wilson = (p, n) => {
  const square = (NORMAL * NORMAL) / n, centre = (p + square / 2) / (1 + square);
  const reach = (NORMAL / (1 + square)) * Math.sqrt((p * (1 - p)) / n + square / (4 * n));
  return { low: p === 0 ? 0 : clip(centre - reach, 0, 1), high: p === 1 ? 1 : clip(centre + reach, 0, 1) };
};

// Mean outcome against mean confidence in each bin that is not empty, with Wilson's 95% interval.
export const histogramCurve = (found) =>
  binSums(found).map((bin, index) => ({ ...bin, index })).filter((bin) => bin.count > 0).map((bin) => {
    const { index, count, confidence, outcome } = bin, value = outcome / count;
    return {
      confidence: clip(confidence / count, 0, 1),
      value,
      ...wilson(value, count),
      share: count / found.n,
      count,
      index,
    };
  });

// The kernel curve: z + r(z) with the residuals y - z smoothed by a triweight kernel.
const FINEST = 2049, NODES_A_BANDWIDTH = 32, NARROWEST = 0.75, SUPPORT = 3, EMPTY = 1e-12;
// Where the kernel finds less than this share of the samples there is nothing to draw.
const FEW = 1e-9;

// Residual kernel curve with a pointwise 95% band. The bandwidth is the rule of thumb 1.06 sigma n^(-1/5), the standard
// deviation of the kernel; 0 and 1 are mirrors. The band is Wilson's interval with the effective number of samples under
// the kernel, q^2 / sum K^2 with q = sum K: it stays wide where few samples are, also if all of them had one outcome.
export const kernelCurve = (found) => {
  const fine = binLinearly(found, FINEST), x = nodesOf(FINEST);
  const centre = sum(fine.count.map((c, k) => c * x[k])) / found.n;
  const second = sum(fine.count.map((c, k) => c * x[k] * x[k])) / found.n;
  const bandwidth = 1.06 * Math.sqrt(Math.max(second - centre * centre, 0)) * found.n ** -0.2;
  let cells = FINEST - 1;
  const wanted = Math.max(NODES_A_BANDWIDTH / Math.max(bandwidth, 1e-9), 256);
  while (cells % 2 === 0 && cells / 2 >= wanted) cells /= 2;
  const { count, outcome } = coarsened(fine, (FINEST - 1) / cells), nodes = nodesOf(cells + 1);
  const kernel = kernelMasses(bandwidth, cells + 1);
  const support = smoothed(count, kernel).map((value) => Math.max(value, EMPTY * found.n));
  const residual = smoothed(outcome.map((value, k) => value - nodes[k] * count[k]), kernel);
  const squares = smoothed(count, kernel.map((mass) => mass * mass));
  const held = (k) => count[k] > EMPTY * found.n;
  let first = 0, last = cells;
  while (!held(first)) first++;
  while (!held(last)) last--;
  const points = [];
  for (let k = first; k <= last; k++) {
    const value = clip(nodes[k] + residual[k] / support[k], 0, 1), supported = support[k] > FEW * found.n;
    const effective = supported ? support[k] ** 2 / squares[k] : 0;
    points.push({ confidence: nodes[k], value, supported, effective, ...(supported ? wilson(value, effective) : { low: 0, high: 1 }) });
  }
  return { bandwidth, points };
};

const nodesOf = (size) => Float64Array.from({ length: size }, (_, k) => k / (size - 1));

// Confidences and outcomes as masses on equally spaced nodes: a point shares its mass between its two neighbours.
const binLinearly = ({ z, y, n }, size) => {
  const count = new Float64Array(size), outcome = new Float64Array(size), cells = size - 1;
  for (let k = 0; k < n; k++) {
    const at = clip(z[k], 0, 1) * cells, cell = Math.min(Math.floor(at), cells - 1), fraction = at - cell;
    count[cell] += 1 - fraction;
    count[cell + 1] += fraction;
    if (!y[k]) continue;
    outcome[cell] += 1 - fraction;
    outcome[cell + 1] += fraction;
  }
  return { count, outcome };
};

// The same sample on fewer nodes.
const coarsened = ({ count, outcome }, factor) => {
  if (factor === 1) return { count, outcome };
  const coarse = (values) => {
    const out = new Float64Array((values.length - 1) / factor + 1);
    values.forEach((value, k) => {
      const cell = Math.min(Math.floor(k / factor), out.length - 2), fraction = k / factor - cell;
      out[cell] += value * (1 - fraction);
      out[cell + 1] += value * fraction;
    });
    return out;
  };
  return { count: coarse(count), outcome: coarse(outcome) };
};

// Triweight kernel on the nodes, folded to period 2, masses that sum to 1 over a period.
const kernelMasses = (bandwidth, size) => {
  const cells = size - 1, scale = Math.max(bandwidth, NARROWEST / cells);
  const turns = Math.ceil((SUPPORT * scale) / 2 + 0.5);
  const masses = Float64Array.from({ length: size }, (_, k) => {
    let total = 0;
    for (let turn = -turns; turn <= turns; turn++) {
      total += Math.max(1 - ((k / cells + 2 * turn) / scale / SUPPORT) ** 2, 0) ** 3;
    }
    return total;
  });
  const period = 2 * sum(masses) - masses[0] - masses[cells];
  return masses.map((mass) => mass / period);
};

// Sum over the masses of the kernel, at each node; masses have images in the mirrors at 0 and 1.
const smoothed = (masses, kernel) => {
  const cells = kernel.length - 1, out = new Float64Array(kernel.length);
  let reach = cells;
  while (reach > 0 && kernel[reach] === 0) reach--;
  const at = (distance) => {
    const folded = distance % (2 * cells);
    return kernel[folded <= cells ? folded : 2 * cells - folded];
  };
  masses.forEach((mass, j) => {
    if (mass === 0) return;
    if (reach === cells) {
      for (let i = 0; i <= cells; i++) out[i] += mass * (at(Math.abs(i - j)) + at(i + j));
      return;
    }
    for (let i = Math.max(j - reach, 0); i <= Math.min(j + reach, cells); i++) out[i] += mass * kernel[Math.abs(i - j)];
    // The images: at -j, seen from the nodes next to 0, and at 2 - j, seen from those next to 1.
    for (let i = 0; i + j <= reach; i++) out[i] += mass * kernel[i + j];
    for (let i = cells; 2 * cells - i - j <= reach && i >= 0; i--) out[i] += mass * kernel[2 * cells - i - j];
  });
  return out;
};

// Map files, format 1: what `mixnmatch.load` reads. Numbers are written as Python writes them, since the checksum is of
// the text that Python would write for the same document.

import { highest, sum } from "./numbers.js";

// Arrays up to this size are written as readable numbers, larger ones as base64 of little-endian bytes.
const READABLE = 64;
// Cells of the histogram of log-odds in the summary of the calibration set, and the largest log-odds in it.
const CELLS = 24, LARGEST = 14, TINY_SINGLE = 1.1754943508222875e-38;

// A whole number. All other numbers are floats, which Python writes with a point or an exponent.
class Whole {
  constructor(value) { this.value = value; }
}

// A float as Python's repr writes it: the same digits as here, with other rules for exponents.
const pythonFloat = (value) => {
  if (Object.is(value, -0)) return "-0.0";
  const [digits, exponent] = value.toExponential().split("e");
  if (value === 0 || (exponent >= -4 && exponent < 16)) {
    const text = String(value);
    return text.includes(".") ? text : `${text}.0`;
  }
  const power = Math.abs(exponent);
  return `${digits}e${exponent < 0 ? "-" : "+"}${power < 10 ? "0" : ""}${power}`;
};

// Text as Python's json writes it: everything but printable ASCII escaped.
const pythonText = (text) =>
  JSON.stringify(text).replace(/[\x7f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

// JSON of a document; canonical (sorted, without spaces) or laid out in lines.
const pythonJson = (value, canonical, depth = 1) => {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return pythonText(value);
  if (value instanceof Whole) return String(value.value);
  if (typeof value === "number") return pythonFloat(value);
  const list = Array.isArray(value);
  const keys = list ? null : Object.keys(value);
  if (canonical && keys) keys.sort();
  const parts = list
    ? value.map((item) => pythonJson(item, canonical, depth + 1))
    : keys.map((key) => `${pythonText(key)}:${canonical ? "" : " "}${pythonJson(value[key], canonical, depth + 1)}`);
  const [open, close] = list ? "[]" : "{}";
  if (parts.length === 0) return open + close;
  if (canonical) return open + parts.join(",") + close;
  const indent = `\n${" ".repeat(depth)}`;
  return `${open}${indent}${parts.join(`,${indent}`)}\n${" ".repeat(depth - 1)}${close}`;
};

// An array of numbers, flat or of rows.
const encodedArray = (values, whole = false) => {
  const nested = Array.isArray(values[0]);
  const flat = nested ? values.flat() : Array.from(values);
  const header = {
    dtype: whole ? "<i8" : "<f8",
    shape: (nested ? [values.length, values[0].length] : [flat.length]).map((size) => new Whole(size)),
  };
  if (flat.length <= READABLE) {
    return { array: { ...header, values: whole ? flat.map((value) => new Whole(value)) : flat } };
  }
  const view = new DataView(new ArrayBuffer(8 * flat.length));
  flat.forEach((value, k) => {
    if (whole) view.setBigInt64(8 * k, BigInt(value), true);
    else view.setFloat64(8 * k, value, true);
  });
  let bytes = "";
  for (const byte of new Uint8Array(view.buffer)) bytes += String.fromCharCode(byte);
  return { array: { ...header, base64: btoa(bytes) } };
};

const WHOLE_ARRAYS = new Set(["offsets_"]);

const encodedValue = (key, value) =>
  Array.isArray(value) || ArrayBuffer.isView(value) ? encodedArray(value, WHOLE_ARRAYS.has(key)) : value;

const encodedAttributes = (attributes) =>
  Object.fromEntries(Object.entries(attributes).map(([key, value]) => [key, encodedValue(key, value)]));

const names = (classes) => (typeof classes[0] === "number" ? encodedArray(classes, true) : { text: [...classes] });

// The map as the library's tree of classes, parameters and fitted attributes.
const encodedMap = (map, table, summary) => {
  const common = { classes_: names(table.names), n_classes_: new Whole(table.width), total_weight_: table.n };
  const input = { logits: table.logits, classes: null, weights: "frequency" };
  const optional = { summary_: { summary: encodedAttributes(summary) } };
  if (table.columns) optional.columns_ = { text: [...table.columns] };
  if (table.vector) optional.vector_ = true;
  if (!map.inner) {
    const params = { loss: "nll", ...input };
    return { type: map.type, params, fitted: { ...encodedAttributes(map.fitted), ...common, ...optional } };
  }
  const { type, params, fitted } = map.inner;
  const own = { ...params, logits: false, classes: null, weights: "frequency" };
  const part = { classes_: encodedArray([0, 1], true), n_classes_: new Whole(2), total_weight_: table.n };
  return {
    type: map.type,
    params: { map: { unfitted: type, params: own }, smoothing: 1, ...input },
    fitted: {
      map_: { type, params: own, fitted: { ...encodedAttributes(fitted), ...part } },
      ...encodedAttributes(map.fitted),
      ...common,
      ...optional,
    },
  };
};

// Calibrated predictions on the calibration set in a few numbers: what the library needs to adapt a map later.
const calibrationSummary = (map, table) => {
  const p = map.predict(table), { width, n, labels } = table;
  const means = new Array(width).fill(0), counts = Array.from({ length: width }, () => new Array(CELLS).fill(0));
  const least = width === 2 ? -LARGEST : -Math.log(width - 1);
  for (let row = 0; row < n; row++) {
    const entries = p.subarray(row * width, (row + 1) * width);
    const top = width === 2 ? entries[1] : highest(entries), others = width === 2 ? entries[0] : 1 - top;
    const odds = Math.log(Math.max(top, TINY_SINGLE)) - Math.log(Math.max(others, TINY_SINGLE));
    const cell = Math.floor(Math.min(Math.max(((odds - least) / (LARGEST - least)) * CELLS, 0), CELLS - 1));
    counts[labels[row]][cell]++;
    entries.forEach((entry, k) => { means[k] += entry; });
  }
  const total = sum(means);
  return { mean_prediction: means.map((mean) => mean / total), counts };
};

// How the library writes the method of a map.
const described = (map, table) => {
  const logits = table.logits ? "logits=True" : "";
  if (!map.inner) return `${map.type}(${logits})`;
  const inner = `map=${map.inner.type}(${map.inner.params.strict ? "strict=True" : ""})`;
  return `${map.type}(${[logits, inner].filter(Boolean).join(", ")})`;
};

// The text of the file of a map that was fitted on a table.
export const mapFile = (map, table, { version, metadata }) => {
  const loss = map.fitted.loss_;
  const document = {
    format: "mixnmatch-map",
    version: new Whole(1),
    library: `mixnmatch ${version}`,
    summary: {
      method: described(map, table),
      accuracy_preserving: map.accuracyPreserving,
      rows: table.n,
      classes: new Whole(table.width),
      loss: map.inner ? null : "nll",
      metrics_at_fit: Number.isFinite(loss) ? { mean_loss: loss } : {},
    },
    map: encodedMap(map, table, calibrationSummary(map, table)),
    metadata,
  };
  const checksum = sha256(new TextEncoder().encode(pythonJson(document, true)));
  return `${pythonJson({ ...document, sha256: checksum }, false)}\n`;
};

// The first 32 bits of the fractional parts of a root of the first primes, which SHA-256 is made of.
const fractions = (count, root) => {
  const found = [];
  for (let candidate = 2n; found.length < count; candidate++) {
    let prime = true;
    for (let divisor = 2n; divisor * divisor <= candidate; divisor++) prime &&= candidate % divisor !== 0n;
    if (!prime) continue;
    // floor(root of prime * 2^32) by bisection on whole numbers; the last 32 bits are the fraction.
    const target = candidate << BigInt(32 * root);
    let low = 0n, high = 1n << 40n;
    while (high - low > 1n) {
      const middle = (low + high) >> 1n;
      if (middle ** BigInt(root) <= target) low = middle;
      else high = middle;
    }
    found.push(Number(low & 0xffffffffn));
  }
  return found;
};

// SHA-256 (FIPS 180-4) in hexadecimal. The browser's own needs a secure context, which a saved page may not have.
export const sha256 = (bytes) => {
  const constants = fractions(64, 3), state = Uint32Array.from(fractions(8, 2));
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n);
  const turned = (word, by) => (word >>> by) | (word << (32 - by));
  const w = new Uint32Array(64);
  for (let start = 0; start < padded.length; start += 64) {
    for (let k = 0; k < 16; k++) w[k] = view.getUint32(start + 4 * k);
    for (let k = 16; k < 64; k++) {
      const near = turned(w[k - 15], 7) ^ turned(w[k - 15], 18) ^ (w[k - 15] >>> 3);
      const far = turned(w[k - 2], 17) ^ turned(w[k - 2], 19) ^ (w[k - 2] >>> 10);
      w[k] = w[k - 16] + near + w[k - 7] + far;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let k = 0; k < 64; k++) {
      const choice = (e & f) ^ (~e & g), majority = (a & b) ^ (a & c) ^ (b & c);
      const first = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + choice + constants[k] + w[k];
      const second = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + majority;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) >>> 0, c, b, a, (first + second) >>> 0];
    }
    [a, b, c, d, e, f, g, h].forEach((value, k) => { state[k] += value; });
  }
  return Array.from(state, (word) => word.toString(16).padStart(8, "0")).join("");
};

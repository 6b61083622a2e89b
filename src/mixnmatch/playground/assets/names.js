// Names of classes: as the columns of a table spell them, and as labels do. The rules are those of docs/files.md.

import { InputError } from "./numbers.js";

// Columns of these names number the rows; taking one for a class would be wrong without a sign of it.
const ROW_NUMBERS = new Set(["", "id", "idx", "index", "row", "row_id", "sample_id", "unnamed: 0"]);
const CALIBRATED = "calibrated_";

const quoted = (text) => JSON.stringify(String(text).slice(0, 80));

const listed = (names) =>
  names.slice(0, 10).map(quoted).join(", ") + (names.length > 10 ? ` and ${names.length - 10} more` : "");

// Which columns hold scores and which one the label.
export const chooseColumns = (header) => {
  const twice = header.filter((name, k) => header.indexOf(name) !== k);
  if (twice.length) throw new InputError(`there is more than one column called ${listed([...new Set(twice)])}`);
  const labels = ["label", "labels"].filter((name) => header.includes(name));
  if (labels.length > 1) throw new InputError('there are columns "label" and "labels"; rename or remove one of them');
  if (!labels.length) {
    throw new InputError(`there is no column "label"; rename the one with the true classes. The columns are ${listed(header)}`);
  }
  const weights = header.filter((name) => name === "weight" || name === "weights");
  if (weights.length) {
    throw new InputError(`there is a column ${listed(weights)}: this page does not use weights. Remove the column, or use the command line`);
  }
  const scores = header.filter((name) => name !== labels[0]);
  const numbering = scores.find((name) => ROW_NUMBERS.has(name.trim().toLowerCase()));
  if (numbering !== undefined && scores.length > 1) {
    const called = numbering.trim() ? `column ${quoted(numbering)} looks` : "a column without a name looks";
    throw new InputError(`${called} like a row number, not a class; remove it`);
  }
  if (!scores.length) throw new InputError(`there are no columns of scores, only ${listed(header)}`);
  const calibrated = scores.filter((name) => name.startsWith(CALIBRATED));
  if (calibrated.length && calibrated.length < scores.length) {
    throw new InputError(`there are columns of calibrated probabilities (${listed(calibrated)}) beside others; keep one kind`);
  }
  return { scores, label: labels[0] };
};

// Whether a text is a whole number as Python writes it: 7 is, 07 is a name.
const isWhole = (text) => /^(0|-?[1-9][0-9]{0,17})$/.test(text);

// Names of classes or labels: numbers if all of them are whole numbers, otherwise text.
export const asNames = (texts) => {
  const plain = texts.map((text) => text.replace(/\.0$/, ""));
  const numbers = plain.map(Number);
  return plain.every(isWhole) && numbers.every(Number.isSafeInteger) ? numbers : texts;
};

// What all names begin with.
const sharedStart = (names) => {
  let size = 0;
  while (names.every((name) => size < name.length && name[size] === names[0][size])) size++;
  return names[0].slice(0, size);
};

// Names of the classes from those of two or more columns: what all share at the start is left off as long as what
// remains are whole numbers, or the start ends in "_", "-", "." or a space.
const classNames = (columns) => {
  const start = sharedStart(columns).replace(/[0-9]+$/, "");
  const rest = columns.map((name) => name.slice(start.length));
  if (rest.every(isWhole)) return asNames(rest);
  const cut = Math.max(...["_", "-", ".", " "].map((mark) => start.lastIndexOf(mark))) + 1;
  const names = columns.map((name) => name.slice(cut));
  return names.every((name) => name) ? names : columns;
};

const compareText = (a, b) => {
  const [left, right] = [[...a], [...b]];
  for (let k = 0; k < Math.min(left.length, right.length); k++) {
    if (left[k] !== right[k]) return left[k].codePointAt(0) - right[k].codePointAt(0);
  }
  return left.length - right.length;
};

// Column of the true class of each sample, and the names of the classes in the order of the columns.
//
// `labels` are all text or all whole numbers; `columns` the names of the score columns, empty if they have none;
// `classes` the names of the classes where the file gives them; `width` the number of score columns.
export const resolveLabels = ({ labels, columns, classes, width }) => {
  const text = typeof labels[0] === "string", wide = Math.max(width, 2);
  if (classes && (classes.length !== wide || new Set(classes).size !== wide)) {
    throw new InputError(`there are ${classes.length} names of classes for ${wide} classes, or some are the same`);
  }
  let names = classes ?? (columns.length > 1 ? classNames(columns) : null);
  if (names === null) names = namesFromLabels(labels, columns, wide, text);
  else if (!text && typeof names[0] === "string") return { codes: positions(labels, wide), names };
  else if (text && !classes) names = withStart(columns, labels, names);
  if (text && typeof names[0] === "number") {
    throw new InputError(`labels are text such as ${quoted(labels[0])}, but the classes are ${listed(names)}`);
  }
  return { codes: matched(labels, names), names };
};

// The names where no column tells them: the labels do, or they are numbered.
const namesFromLabels = (labels, columns, width, text) => {
  const found = [...new Set(labels)];
  if (!text) return width === 2 && found.includes(-1) && found.every((label) => Math.abs(label) === 1)
    ? [-1, 1] : Array.from({ length: width }, (_, k) => k);
  found.sort(compareText);
  if (columns.length === 1) {
    // A single column, of the positive class, bears the name of that class.
    if (found.length !== 2 || !found.includes(columns[0])) {
      throw new InputError(
        `column ${quoted(columns[0])} should be called like the positive class, but the labels are ${listed(found)}; rename it`,
      );
    }
    return [found.find((name) => name !== columns[0]), columns[0]];
  }
  if (found.length !== width) {
    throw new InputError(
      `the labels name ${found.length} classes but the scores have ${width}; name the classes in order with "classes"`,
    );
  }
  return found;
};

// Names of classes where labels have more of the columns' shared start, such as class_0.
const withStart = (columns, labels, names) => {
  const found = new Set(labels);
  const within = (candidates) => [...found].every((label) => candidates.includes(label));
  if (within(names)) return names;
  for (let cut = 0; cut <= sharedStart(columns).length; cut++) {
    const longer = columns.map((name) => name.slice(cut));
    if (within(longer)) return longer;
  }
  return names;
};

const positions = (labels, width) => Int32Array.from(labels, (label, row) => {
  if (label < 0 || label >= width) {
    throw new InputError(`label ${label} in row ${row} is not the position of a column (0 to ${width - 1})`);
  }
  return label;
});

const matched = (labels, names) => {
  const place = new Map(names.map((name, k) => [name, k]));
  return Int32Array.from(labels, (label, row) => {
    if (!place.has(label)) {
      throw new InputError(`label ${quoted(label)} in row ${row} is not one of the classes ${listed(names)}`);
    }
    return place.get(label);
  });
};

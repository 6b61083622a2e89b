// Files: CSV and JSON as a table of numbers with labels. Errors say where they are and what to do.

import { InputError } from "./numbers.js";
import { asNames, chooseColumns, resolveLabels } from "./names.js";
import { checkedTable } from "./table.js";

// Larger files, and tables with more entries, would keep the page busy for long.
export const MOST_BYTES = 25e6, MOST_ENTRIES = 1e6;
const MOST_LABEL = 1000;
// To fit on one part and evaluate on another.
const FEWEST = 10;
const USE_PYTHON = "For such a file use the command line: mixnmatch report FILE -o report.html";

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0)} MB`;

export const checkFile = (name, bytes) => {
  if (bytes > MOST_BYTES) {
    throw new InputError(`the file has ${megabytes(bytes)}; this page reads up to ${megabytes(MOST_BYTES)}. ${USE_PYTHON}`);
  }
  if (bytes === 0) throw new InputError("the file is empty");
  if (/\.(npz|npy|parquet|gz|zip|xlsx?|pkl|pt)$/i.test(name)) {
    throw new InputError(`this page reads .csv, .tsv and .json. ${USE_PYTHON}`);
  }
};

// Bytes of a file as text.
export const decoded = (bytes) => {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new InputError("the file is not text in UTF-8; save it in this encoding (Excel: CSV UTF-8)");
  }
  if (text.includes("\0")) throw new InputError("the file is not text; is it a .csv or .json file?");
  return text;
};

// A checked table from the text of a file, and warnings. `logits` says what the scores are unless the file says it.
export const readTable = (text, logits) => {
  const raw = /^\s*[[{]/.test(text) ? readJson(text) : readCsv(text);
  const n = raw.labels.length;
  if (n < FEWEST) {
    throw new InputError(`there are ${n} samples; at least ${FEWEST} are needed to fit on some and evaluate on others`);
  }
  if (raw.scores.length > MOST_ENTRIES) {
    throw new InputError(`there are ${raw.scores.length} scores; this page takes up to ${MOST_ENTRIES}. ${USE_PYTHON}`);
  }
  const { codes, names } = resolveLabels(raw);
  const columns = raw.columns.length > 1 ? raw.columns : null;
  const said = raw.logits ?? logits;
  return { ...checkedTable({ scores: raw.scores, width: raw.width, logits: said, labels: codes, names, columns }), said: raw.logits };
};

// Cells of a line of CSV. Quotes may hold separators, line ends and, doubled, quotes.
class CsvLines {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.line = 0;
  }

  next(separator) {
    const { text } = this, cells = [];
    if (this.at >= text.length) return null;
    this.line++;
    const first = this.line;
    for (;;) {
      let cell = "";
      if (text[this.at] === '"') {
        for (;;) {
          const end = text.indexOf('"', this.at + 1);
          if (end < 0) throw new InputError(`line ${first}: a quote is never closed`);
          const part = text.slice(this.at + 1, end);
          this.line += part.split("\n").length - 1;
          cell += part;
          this.at = end;
          if (text[end + 1] !== '"') break;
          cell += '"';
          this.at = end + 1;
        }
        this.at++;
        if (this.at < text.length && !"\r\n".includes(text[this.at]) && text[this.at] !== separator) {
          throw new InputError(`line ${this.line}: there is text after a closing quote`);
        }
      } else {
        const start = this.at;
        while (this.at < text.length && text[this.at] !== separator && text[this.at] !== "\n" && text[this.at] !== "\r") this.at++;
        cell = text.slice(start, this.at);
      }
      cells.push(cell);
      if (text[this.at] === separator) {
        this.at++;
        continue;
      }
      if (text[this.at] === "\r") this.at++;
      if (text[this.at] === "\n") this.at++;
      return cells;
    }
  }
}

// What separates columns: of commas, semicolons and tabs the one that gives the header most cells.
const separatorOf = (text) => {
  const cells = (mark) => {
    try {
      return new CsvLines(text).next(mark)?.length ?? 0;
    } catch {
      return 0; // quotes around other separators
    }
  };
  return [",", ";", "\t"].reduce((best, other) => (cells(other) > cells(best) ? other : best));
};

// A number as Python's float() reads it, or null.
const readNumber = (cell) => {
  const text = cell.trim();
  if (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) return Number(text);
  if (/^[+-]?nan$/i.test(text)) return NaN;
  if (/^[+-]?inf(inity)?$/i.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
  return null;
};

const readCsv = (text) => {
  const separator = separatorOf(text), lines = new CsvLines(text);
  const header = (lines.next(separator) ?? []).map((name) => name.trim());
  if (!header.some((name) => name)) throw new InputError("the first line is empty; it should name the columns");
  if (header.length === 1) {
    throw new InputError(
      `there is one column, ${JSON.stringify(header[0].slice(0, 60))}; columns must be separated by commas, semicolons or tabs`,
    );
  }
  const chosen = chooseColumns(header);
  const at = chosen.scores.map((name) => header.indexOf(name)), labelAt = header.indexOf(chosen.label);
  const scores = [], labels = [];
  let decimal = ".";
  for (let cells = lines.next(separator), row = 0; cells !== null; cells = lines.next(separator)) {
    if (cells.length === 1 && cells[0] === "") continue;
    const where = `line ${lines.line} (row ${row})`;
    if (cells.length !== header.length) {
      throw new InputError(`${where} has ${cells.length} values, the header has ${header.length}`);
    }
    // In files without commas between columns numbers may have a decimal comma.
    if (row === 0 && separator !== "," && at.some((k) => cells[k].includes(","))) decimal = ",";
    for (const k of at) {
      const number = readNumber(decimal === "," ? cells[k].replace(",", ".") : cells[k]);
      if (number === null) {
        const cell = cells[k].trim(), what = cell ? `${JSON.stringify(cell.slice(0, 40))} is not a number` : "the cell is empty";
        throw new InputError(`${where}, column ${JSON.stringify(header[k])}: ${what}`);
      }
      scores.push(number);
    }
    labels.push(checkedLabel(cells[labelAt].trim(), where));
    row++;
  }
  if (!labels.length) throw new InputError("the file has a header but no rows");
  return {
    scores: Float64Array.from(scores), width: at.length, labels: asNames(labels), columns: chosen.scores, classes: null, logits: null,
  };
};

const checkedLabel = (label, where) => {
  if (!label) throw new InputError(`${where}: there is no label`);
  if (label.length > MOST_LABEL) {
    throw new InputError(`${where}: a label of ${label.length} characters; names of classes have at most ${MOST_LABEL}`);
  }
  return label;
};

// JSON: { "probs" or "logits": rows or numbers, "labels": [...], "classes": [...] }, or a list of rows as objects.
const readJson = (text) => {
  let content;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw new InputError(`the file is not valid JSON (${error.message}); NaN and Infinity are not JSON`);
  }
  if (Array.isArray(content)) return readRecords(content);
  const forms = ["probs", "logits"].filter((key) => key in content);
  if (forms.length !== 1 || !("labels" in content)) {
    throw new InputError(
      'the file should have "probs" or "logits", and "labels"; it has ' + (Object.keys(content).slice(0, 10).join(", ") || "nothing"),
    );
  }
  if ("weights" in content) throw new InputError('there are "weights": this page does not use them. Remove them, or use the command line');
  const given = content[forms[0]], { labels, classes = null } = content;
  if (!Array.isArray(given) || !given.length) throw new InputError(`"${forms[0]}" should be a list with an entry for each sample`);
  if (!Array.isArray(labels) || labels.length !== given.length) {
    throw new InputError(`there are ${labels?.length ?? "no"} labels for ${given.length} rows of scores`);
  }
  const width = Array.isArray(given[0]) ? given[0].length : 1;
  if (Array.isArray(given[0]) && width < 2) {
    throw new InputError("scores have one column: for the positive class of two give a list of numbers");
  }
  const scores = new Float64Array(given.length * width);
  given.forEach((row, k) => scores.set(numbersOf(width === 1 ? [row] : row, width, k), k * width));
  if (classes !== null && !(Array.isArray(classes) && allOfOneKind(classes))) {
    throw new InputError('"classes" should be a list of names, all text or all whole numbers');
  }
  return { scores, width, labels: checkedLabels(labels), columns: [], classes, logits: forms[0] === "logits" };
};

const readRecords = (records) => {
  if (!records.length || !records.every((row) => row !== null && typeof row === "object" && !Array.isArray(row))) {
    throw new InputError('the list should hold an object for each sample, such as {"label": "cat", "cat": 0.7, "dog": 0.3}');
  }
  const chosen = chooseColumns(Object.keys(records[0]));
  const width = chosen.scores.length, scores = new Float64Array(records.length * width);
  records.forEach((row, k) => scores.set(numbersOf(chosen.scores.map((name) => row[name]), width, k), k * width));
  const labels = checkedLabels(records.map((row) => row[chosen.label]));
  return { scores, width, labels, columns: chosen.scores, classes: null, logits: null };
};

const numbersOf = (row, width, k) => {
  if (!Array.isArray(row) || row.length !== width) {
    throw new InputError(`row ${k} of the scores does not have ${width} numbers, as the first one has`);
  }
  const bad = row.findIndex((value) => typeof value !== "number");
  if (bad >= 0) throw new InputError(`row ${k} of the scores: ${JSON.stringify(row[bad]) ?? "nothing"} is not a number`);
  return row;
};

const allOfOneKind = (labels) =>
  labels.every((label) => typeof label === "string") || labels.every((label) => Number.isSafeInteger(label));

const checkedLabels = (labels) => {
  const plain = labels.map((label) => (typeof label === "boolean" ? Number(label) : label));
  if (!allOfOneKind(plain)) {
    const row = plain.findIndex((label) => !(typeof label === "string" || Number.isSafeInteger(label)));
    throw new InputError(
      row >= 0 ? `label ${JSON.stringify(plain[row])} in row ${row} is not a class; labels are text or whole numbers`
        : "labels must be all text or all whole numbers",
    );
  }
  plain.forEach((label, row) => { if (typeof label === "string") checkedLabel(label, `row ${row}`); });
  return plain;
};

"use strict";

const content = JSON.parse(document.getElementById("content").textContent);
const ENDED_BADLY = new Set(["failed", "diverged", "missing", "killed", "interrupted"]);
const NUMBER = /^[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?(?=$|[\s[(:×%])/i;
const collator = new Intl.Collator("en", { numeric: true });
const byId = (id) => document.getElementById(id);

/** An element; its children are elements and text, so nothing that a run wrote becomes markup. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Text with its `quoted` parts as code. */
function withCode(text) {
  return text.split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));
}

/** A name that may wrap after _ / or = */
function breakable(name) {
  return name.split(/(?<=[_/=])/).flatMap((part) => [part, make("wbr")]);
}

function numberOf(text) {
  const found = NUMBER.exec(text);
  return found ? Number(found[0].replaceAll(",", "")) : null;
}

function wordsOf(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

function debounce(action, wait = 120) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, wait);
  };
}

/** A table that sorts by its heads and is filtered by the form; a row may open to show details. */
class Sheet {
  /** rows: {cells, search, statuses?, attention?, decorate?(td, i), open?() -> element} */
  constructor(place, { title = "", note, columns, rows, kind = "", minor = [], largestFirst = [] }) {
    this.rows = rows;
    this.columns = columns;
    this.minor = new Set(minor);
    this.largestFirst = new Set(largestFirst);
    this.numeric = columns.map((_, i) => {
      const filled = rows.map((row) => row.cells[i]).filter(Boolean);
      return i > 0 && filled.length > 0 && filled.filter((text) => numberOf(text) !== null).length * 2 > filled.length;
    });
    this.heads = columns.map((name, i) =>
      make("th", { scope: "col", class: this.kind(i), "aria-sort": "none" },
        make("button", { type: "button", onclick: () => this.sort(i) }, name)));
    this.body = make("tbody");
    this.none = make("tr", {}, make("td", { colspan: columns.length, class: "muted" }, "Nothing matches the filter."));
    for (const row of rows) {
      row.element = this.line(row);
      row.search = wordsOf(row.search).join(" ");
    }
    this.count = make("span", { class: "note" });
    const heading = make("h3", {}, title);
    this.element = make("div", { class: `sheet ${kind}` },
      make("div", { class: "head" }, title ? heading : null, this.count, note ? make("span", { class: "note" }, note) : null),
      make("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": `Table: ${title || kind}` },
        make("table", {}, make("caption", { class: "unseen" }, title || kind),
          make("thead", {}, make("tr", {}, ...this.heads)), this.body)));
    this.order = rows;
    this.show();
    place.append(this.element);
  }

  kind(i) {
    const classes = { number: this.numeric[i], minor: this.minor.has(i), versus: /^difference/.test(this.columns[i]) };
    return Object.keys(classes).filter((name) => classes[name]).join(" ");
  }

  line(row) {
    return make("tr", { id: row.id },
      ...row.cells.map((text, i) => {
        const cell = i === 0 ? make("th", { scope: "row" }) : make("td", { class: this.kind(i) });
        if (i === 0 && row.open) {
          row.button = make("button", { type: "button", class: "name", "aria-expanded": "false", onclick: () => this.toggle(row) },
            make("span", {}, ...row.label));
          cell.append(row.button, ...(row.tags ?? []));
        } else if (this.numeric[i]) {
          const [, main, colon, sub] = /^(.*?)(: )?((?<=: ).*|(?= to |[[(]).*)?$/s.exec(text);
          cell.append(main, ...(colon ? [make("span", { class: "colon" }, colon)] : []), sub ? make("span", { class: "sub" }, ...breakable(sub)) : "");
        } else cell.append(text);
        row.decorate?.(cell, i);
        return cell;
      }));
  }

  toggle(row, open = !row.details) {
    if (open === Boolean(row.details)) return;
    if (open) {
      row.details = make("tr", { class: "details" }, make("td", { colspan: this.columns.length }, make("div", { class: "inner" }, row.open())));
      row.element.after(row.details);
    } else {
      row.details.remove();
      row.details = null;
    }
    for (const button of row.element.querySelectorAll("[aria-expanded]")) button.setAttribute("aria-expanded", open);
  }

  /** Best first, then the other way round. Numbers before words, empty cells last both ways; the sort is stable. */
  sort(i) {
    const head = this.heads[i];
    const sorted = head.getAttribute("aria-sort");
    const descending = sorted === "none" ? this.largestFirst.has(i) : sorted === "ascending";
    for (const other of this.heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const sign = descending ? -1 : 1;
    const keyed = this.rows.map((row) => ({ row, text: row.cells[i], number: this.numeric[i] ? numberOf(row.cells[i]) : null }));
    const kind = ({ text, number }) => (number !== null ? 0 : text ? 1 : 2);
    keyed.sort((a, b) => {
      if (kind(a) !== kind(b)) return kind(a) - kind(b);
      return sign * (a.number !== null ? a.number - b.number : collator.compare(a.text, b.text));
    });
    this.order = keyed.map(({ row }) => row);
    this.show();
  }

  filter(accepts) {
    for (const row of this.rows) row.hidden = !accepts(row);
    this.show();
  }

  show() {
    const shown = this.order.filter((row) => !row.hidden);
    this.body.replaceChildren(...shown.flatMap((row) => (row.details ? [row.element, row.details] : [row.element])));
    if (!shown.length) this.body.append(this.none);
    this.shown = shown.length;
    const total = this.rows.length;
    this.count.textContent = `${shown.length === total ? total : `${shown.length} of ${total}`} row${total === 1 ? "" : "s"}`;
  }
}

/** A definition list, without empty entries. */
function terms(entries) {
  const list = make("dl");
  for (const [term, definition] of entries) {
    if (definition && (!Array.isArray(definition) || definition.length)) {
      const parts = Array.isArray(definition) ? [make("ul", {}, ...definition.map((text) => make("li", {}, text)))] : [definition];
      list.append(make("dt", {}, term), make("dd", {}, ...parts));
    }
  }
  return list;
}

const { runs } = content;
const sheets = [];

function header() {
  byId("heading").textContent = content.heading;
  const commits = content.commits.slice(0, 4).map(([commit, count]) => `${commit} (${count})`).join(", ");
  const others = content.commits.length > 4 ? ` and ${content.commits.length - 4} others` : "";
  byId("made").textContent =
    `Made ${content.made.replace("T", " ").slice(0, 16)}.` + (commits ? ` Code of the runs: ${commits}${others}.` : "");
  const [, , listed] = /^(.*?): (.*)\.$/s.exec(content.counts);
  const total = make("li", {}, make("b", {}, String(runs.length)), ` run${runs.length === 1 ? "" : "s"}`);
  byId("counts").append(total, ...listed.split(", ").map((part) => {
    const [, number, words] = /^(\S+) (.*)$/.exec(part);
    return make("li", { class: words === "ok" || words === "running" ? "" : "problem" }, make("b", {}, number), ` ${words}`);
  }));
  for (const section of document.querySelectorAll("main > section")) {
    if (!section.hidden) byId("contents").append(make("li", {}, make("a", { href: `#${section.id}` }, section.dataset.contents)));
  }
}

function results() {
  const place = byId("results");
  byId("legend").append(make("ul", {}, ...content.legend.split(/(?<=\.) /).map((sentence) => make("li", {}, ...withCode(sentence)))));
  byId("every-column").addEventListener("change", (event) => place.classList.toggle("every", event.target.checked));
  for (const table of content.tables) {
    const rows = table.rows.map((row) => resultRow(table, row));
    sheets.push(new Sheet(place, {
      title: table.title, note: table.usual.join(" "), columns: table.columns, rows,
      minor: table.minor, largestFirst: table.largest_first,
    }));
  }
  if (content.leftovers.length) {
    place.append(make("h3", {}, "Not in a table"),
      make("ul", { class: "leftovers problem" }, ...content.leftovers.map((text) => make("li", {}, text))));
  }
}

function resultRow(table, row) {
  const [label] = row.cells;
  const ofRow = row.runs.map((number) => runs[number]);
  const made = {
    ...row,
    label: breakable(row.attention),
    tags: [
      row.control ? make("span", { class: "tag" }, "control") : "",
      make("span", { class: "sub" }, " ", ...breakable(label.slice(row.attention.length).trim())),
    ],
    search: [...row.cells, ...row.notes, ...row.published_notes, ...row.statuses, ...ofRow.map((run) => run.name)].join(" "),
    open: () => terms([
      ["attention", content.about[row.attention]],
      ["published", row.published_notes],
      ["notes", row.notes],
      ["pictures", ofRow.length ? pictures(ofRow[0]) : null],
      ["runs", ofRow.length ? make("ul", { class: "links" }, ...row.runs.map(runLink)) : null],
    ]),
    decorate(cell, i) {
      const column = table.columns[i];
      if (column === "n" && row.statuses.some((status) => ENDED_BADLY.has(status))) cell.lastElementChild?.classList.add("problem");
      if (column === "verdict") cell.classList.add("verdict");
      if (column === "verdict" && /^significant/.test(row.cells[i])) cell.classList.add("strong");
      if (row.marked.includes(i)) cell.lastElementChild?.classList.add("other");
      if (i === row.published && row.reasons.length) {
        const [before, after] = row.cells[i].split("≠");
        const sheet = () => sheets.find((one) => one.rows.includes(made));
        cell.replaceChildren(before, make("button", {
          type: "button", class: "mark", "aria-expanded": "false",
          "aria-label": `not comparable: ${row.reasons.join("; ")}`, title: `not comparable: ${row.reasons.join("; ")}`,
          onclick: () => sheet().toggle(made),
        }, "≠"), make("span", { class: "sub" }, after ?? ""));
        cell.classList.add("sub");
      }
    },
  };
  return made;
}

function runLink(number) {
  const run = runs[number];
  const text = [`seed ${run.seed}`, run.result || run.status].join(": ");
  const link = make("a", { href: `#run-${number}`, onclick: (event) => { event.preventDefault(); showRun(number); } }, text);
  return make("li", { class: ENDED_BADLY.has(run.status) ? "problem" : "" }, link);
}

function runList() {
  const lastOf = ({ name }) => name.split("/").at(-1);
  const counts = new Map();
  for (const run of runs) counts.set(lastOf(run), (counts.get(lastOf(run)) ?? 0) + 1);
  const rows = runs.map((run, number) => ({
    ...run,
    id: `run-${number}`,
    label: [counts.get(lastOf(run)) > 1 ? run.name : lastOf(run)],
    statuses: [run.status],
    search: [...run.cells, run.error, run.command].join(" "),
    open: () => terms([
      ["error", run.error],
      ["pictures", pictures(run)],
      ["repeat it", run.command ? commandLine(run.command) : null],
      ["folder", make("a", { href: `../${run.name.split("/").map(encodeURIComponent).join("/")}/` }, run.name)],
      ["compare", make("span", { class: "command" },
        make("button", { type: "button", onclick: () => choose("first", number) }, "as run A"),
        make("button", { type: "button", onclick: () => choose("second", number) }, "as run B"))],
    ]),
    decorate(cell, i) {
      if (content.run_columns[i] === "status" && ENDED_BADLY.has(run.status)) cell.classList.add("problem");
      if (i > 0) cell.classList.add("short");
    },
  }));
  rows.sort((a, b) => collator.compare(a.cells[0], b.cells[0]));
  const sheet = new Sheet(byId("runs"), { columns: content.run_columns, rows, kind: "runs", largestFirst: content.runs_largest_first });
  for (const [i, head] of sheet.heads.entries()) {
    const longest = Math.max(content.run_columns[i].length + 4, ...rows.map((row) => (i ? row.cells[i] : row.label[0]).length));
    head.style.width = `${Math.min(40, longest) * 0.55 + (i ? 1.3 : 2.6)}rem`;
  }
  sheets.push(sheet);
}

/** The pictures of a run: those in this page folded, the others as links to its folder. */
function pictures(run) {
  const found = Object.entries(run.pictures);
  if (!found.length) return null;
  const path = (name) => `../${run.name.split("/").map(encodeURIComponent).join("/")}/${name}`;
  return make("div", { class: "pictures" }, ...found.map(([name, data]) => {
    const title = name.replace(".png", "");
    if (!data) return make("a", { href: path(name) }, title);
    return make("details", {}, make("summary", {}, title), make("img", { src: data, alt: `${title} of ${run.name}`, loading: "lazy" }));
  }));
}

function commandLine(command) {
  const copy = make("button", { type: "button", onclick: async () => {
    await navigator.clipboard.writeText(command);
    copy.textContent = "copied";
  } }, "copy");
  return make("span", { class: "command" }, make("code", {}, command), navigator.clipboard ? copy : null);
}

function showRun(number) {
  const sheet = sheets.at(-1);
  const row = sheet.rows.find(({ id }) => id === `run-${number}`);
  if (row.hidden) {
    byId("filter").reset();
    sheet.filter(() => true);
  }
  sheet.toggle(row, true);
  row.element.scrollIntoView({ block: "center" });
  row.button.focus({ preventScroll: true });
}

function filters() {
  const form = byId("filter");
  const { words, attention, status } = form.elements;
  const all = sheets.flatMap((sheet) => sheet.rows);
  const options = (values) => [...new Set(values)].sort(collator.compare).map((value) => make("option", { value }, value));
  attention.append(...options(all.map((row) => row.attention)));
  status.append(...options(all.flatMap((row) => row.statuses)));
  const count = () => {
    const shown = (some) => `${some.reduce((sum, sheet) => sum + sheet.shown, 0)} of ${some.reduce((sum, sheet) => sum + sheet.rows.length, 0)}`;
    byId("remaining").textContent = `${shown(sheets.slice(0, -1))} rows, ${shown(sheets.slice(-1))} runs`;
  };
  const apply = () => {
    const wanted = wordsOf(words.value);
    for (const sheet of sheets) {
      sheet.filter((row) => (!attention.value || row.attention === attention.value)
        && (!status.value || row.statuses.includes(status.value))
        && wanted.every((word) => row.search.includes(word)));
    }
    count();
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", debounce(apply));
  form.addEventListener("reset", () => setTimeout(apply));
  count();
}

/** A run's options and facts: the common values with its exceptions. */
function facts(number) {
  const { names, values, common, others } = content.options;
  return names.map((name, i) => [name, values[others[number][i] ?? common[i]]]);
}

function choose(field, number) {
  byId("pair").elements[field].value = runs[number].name;
  compare();
  byId("differences").scrollIntoView();
}

/** The indices of the runs that a name or words in it match. */
function matching(text) {
  const exact = runs.findIndex((run) => run.name === text.trim());
  if (exact >= 0) return [exact];
  const wanted = wordsOf(text);
  return wanted.length ? runs.flatMap((run, i) => (wanted.every((word) => run.name.toLowerCase().includes(word)) ? [i] : [])) : [];
}

let comparison = null;
function compare() {
  const { first, second, equal } = byId("pair").elements;
  const chosen = [first, second].map((field) => matching(field.value));
  comparison?.element.remove();
  byId("pair-more").replaceChildren();
  const wrong = chosen.findIndex((found) => found.length !== 1);
  if (wrong >= 0) {
    const count = chosen[wrong].length;
    byId("pair-result").textContent = `Run ${"AB"[wrong]}: ${count ? `${count} runs match; type more of the name` : "no run has this name"}.`;
    return;
  }
  const [a, b] = chosen.map(([number]) => facts(number));
  const rows = a.map(([name, value], i) => ({ cells: [name, value, b[i][1]], search: "", differs: value !== b[i][1] }));
  const different = rows.filter((row) => row.differs).length;
  byId("pair-result").textContent = `${different} of ${rows.length} options and facts differ, ${rows.length - different} are equal.`;
  comparison = new Sheet(byId("differences"), {
    kind: "comparison", columns: ["option", "run A", "run B"], rows: rows.filter((row) => row.differs || equal.checked),
  });
  comparison.count.remove();
  byId("pair-more").replaceChildren(...[...pairCurves(a_b(chosen)), ...pairAnswers(a_b(chosen))]);
}

const a_b = (chosen) => chosen.map(([number]) => runs[number]);
const PAIR = ["A", "B"];
const PAIR_COLOURS = ["#0072B2", "#D55E00"];
const PANELS = { metric: "", "val/loss": "Validation loss", "train/loss": "Training loss" };
const MAX_DIFFERING = 50;

/** The learning curves of two runs, for the panels that either has. */
function pairCurves(pair) {
  const panels = Object.entries(PANELS).filter(([panel]) => pair.some((run) => run.curves[panel])).map(([panel, title]) =>
    lineChart(title || `Validation ${pair[0].metric.split("/").at(-1)}`, pair.map((run) => run.curves[panel] ?? [[], []])));
  if (!panels.length) return [];
  const key = PAIR.map((name, i) => make("li", {}, svg("svg", { width: 24, height: 10 }, svg("path", { d: "M0 5H24", stroke: PAIR_COLOURS[i], "stroke-width": 2 })), name));
  return [make("h3", {}, "Learning curves"), make("div", { class: "plot", role: "img", "aria-label": "Learning curves of runs A and B" }, ...panels), make("ul", { class: "key" }, ...key)];
}

function svg(tag, properties, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** About four round numbers between two ends. */
function ticks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}

/** Lines [[x...], [y...]] over epochs, in the style of the other figures. */
function lineChart(title, lines) {
  const [left, right, top, bottom] = [44, 270, 24, 180]; // pixels
  const ends = (axis) => {
    const all = lines.flatMap((line) => line[axis]);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const room = 0.05 * (high - low) || 0.5;
    return [low - room, high + room];
  };
  const [across, up] = [ends(0), ends(1)];
  const x = (value) => left + (right - left) * (value - across[0]) / (across[1] - across[0]);
  const y = (value) => bottom - (bottom - top) * (value - up[0]) / (up[1] - up[0]);
  const text = (words, at) => svg("text", { fill: "var(--muted)", "font-size": 12, "text-anchor": "middle", ...at }, words);
  return svg("svg", { width: 280, height: 220, viewBox: "0 0 280 220" },
    svg("path", { d: `M${left} ${top}V${bottom}H${right}`, fill: "none", stroke: "var(--line)" }),
    text(title, { class: "title", x: left, y: 14, fill: "var(--ink)", "font-weight": "bold", "text-anchor": "start" }),
    text("epoch", { x: (left + right) / 2, y: 214, fill: "var(--ink)" }),
    ...ticks(...across).filter(Number.isInteger).map((value) => text(value, { x: x(value), y: bottom + 16 })),
    ...ticks(...up).map((value) => text(value, { x: left - 5, y: y(value) + 4, "text-anchor": "end" })),
    ...ticks(...up).map((value) => svg("path", { d: `M${left} ${y(value)}H${right}`, stroke: "var(--line)", "stroke-width": 0.5 })),
    ...lines.flatMap(([xs, ys], i) => [
      svg("path", { d: xs.map((value, at) => `${at ? "L" : "M"}${x(value)} ${y(ys[at])}`).join(""), fill: "none", stroke: PAIR_COLOURS[i], "stroke-width": 1.8 }),
      ...xs.map((value, at) => svg("circle", { cx: x(value), cy: y(ys[at]), r: 2.5, fill: PAIR_COLOURS[i] }, svg("title", {}, `${PAIR[i]}, epoch ${value}: ${ys[at]}`))),
    ]));
}

/** The test examples on which two runs differ most; they must have been scored on the same ones. */
function pairAnswers(pair) {
  const heading = make("h3", {}, "Test predictions");
  if (pair.some((run) => run.test === undefined)) return [heading, make("p", { class: "muted" }, "Not shown: a run has no predictions of one class or one number for each example.")];
  if (pair[0].test !== pair[1].test) return [heading, make("p", { class: "muted" }, "Not shown: the runs were scored on different examples.")];
  const test = content.tests[pair[0].test];
  const classes = test.kind === "classes";
  const named = (value) => (value === null ? "" : classes ? test.names[value] ?? String(value) : String(value));
  const examples = test.ids.map((id, i) => ({ i, id, target: test.targets[i], answers: pair.map((run) => run.answers[i]) }));
  const some = test.ids.length < test.total ? `Of ${test.ids.length.toLocaleString("en")} of ${test.total.toLocaleString("en")} test examples, ` : `Of ${test.total.toLocaleString("en")} test examples, `;
  const right = ({ target, answers }, i) => answers[i] === target;
  const count = (accepts) => examples.filter(accepts).length.toLocaleString("en");
  const differing = examples.filter(({ answers }) => answers[0] !== answers[1]);
  const rank = ({ target, answers }) => (classes ? answers.includes(target) ? 0 : 1 : -Math.abs(answers[0] - answers[1]));
  differing.sort((one, other) => rank(one) - rank(other));
  const closer = (i) => count(({ target, answers }) => target !== null && Math.abs(answers[i] - target) < Math.abs(answers[1 - i] - target));
  const sentence = classes
    ? `${some}both are right on ${count((e) => right(e, 0) && right(e, 1))}, only A on ${count((e) => right(e, 0) && !right(e, 1))}, only B on ${count((e) => !right(e, 0) && right(e, 1))}, neither on ${count((e) => !right(e, 0) && !right(e, 1))}.`
    : `${some}A is closer on ${closer(0)}, B on ${closer(1)}.`;
  const shown = differing.slice(0, MAX_DIFFERING);
  const columns = ["example", ...(Object.keys(test.texts).length ? ["content"] : []), "true", "run A", "run B"];
  const rows = shown.map((example) => ({
    cells: [test.places?.[example.i] ?? `test example ${example.id}`, ...(columns.includes("content") ? [test.texts[example.i] ?? ""] : []),
      named(example.target), ...example.answers.map(named)],
    search: "",
    decorate(cell, i) {
      const which = i - columns.indexOf("run A");
      if (classes && which >= 0 && !right(example, which)) cell.classList.add("problem");
      if (columns[i] === "content") cell.classList.add("long");
    },
  }));
  const parts = [heading, make("p", {}, sentence)];
  if (rows.length) {
    const place = make("div");
    const sheet = new Sheet(place, { kind: "differing predictions", columns, rows });
    sheet.count.textContent = `${shown.length < differing.length ? `${shown.length} of ` : ""}${differing.length.toLocaleString("en")} differing predictions${classes ? "" : ", largest differences first"}`;
    parts.push(place);
  }
  return parts;
}

/** Two finished runs of one table, of two of its rows if it has them; the first two runs if there are none. */
function firstPair() {
  const finished = content.tables.map((table) => table.rows
    .map((row) => row.runs.filter((number) => runs[number].status === "ok")).filter((row) => row.length));
  const rows = finished.find((all) => all.length > 1);
  return rows ? [rows[0][0], rows[1][0]] : finished.flat().find((row) => row.length > 1)?.slice(0, 2) ?? [0, 1];
}

function differences() {
  if (runs.length < 2) {
    byId("differences").hidden = true;
    return;
  }
  byId("run-names").append(...runs.map((run) => make("option", { value: run.name })));
  const form = byId("pair");
  const { first, second, swap } = form.elements;
  [first.value, second.value] = firstPair().map((number) => runs[number].name);
  swap.addEventListener("click", () => {
    [first.value, second.value] = [second.value, first.value];
    compare();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", debounce(compare));
  compare();
}

/** An SVG element from its text; what runs wrote is escaped in it. */
function drawn(text) {
  return document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
}

/** A figure below its title, which folds it. */
function framed(figure, level, open) {
  const files = figure.pictures.flatMap((path) => [" ", make("a", { href: path }, path.split(".").at(-1).toUpperCase())]);
  const title = make(level, {}, figure.title);
  return make("details", { id: `figure-${figure.name}`, class: `figure ${figure.panels.length === 1 ? "narrow" : ""}`, open },
    make("summary", {}, title),
    make("figure", { "aria-label": figure.title },
      make("div", { class: "plot", role: "img", "aria-label": figure.alt }, ...figure.panels.map(drawn)),
      make("ul", { class: "key" }, ...figure.legend.map(([name, symbol]) => make("li", {}, drawn(symbol), name))),
      make("figcaption", {}, make("p", {}, figure.caption), files.length ? make("p", {}, "For papers:", ...files) : null)));
}

function figures() {
  const section = byId("figures");
  if (!content.figures.length) {
    section.hidden = true;
    return;
  }
  const contents = make("nav", { "aria-label": "Figures" });
  section.append(contents);
  const of = [...new Set(content.figures.map((figure) => figure.table))];
  const several = of.length > 1; // then all figures but the first of each table are folded
  for (const table of of) {
    const here = content.figures.filter((figure) => figure.table === table);
    const grid = make("div", { class: "charts" });
    for (const figure of here) {
      grid.append(framed(figure, several ? "h4" : "h3", !several || figure === here[0]));
    }
    if (several) {
      const title = make("h3", { id: `figures-${of.indexOf(table)}` }, table);
      contents.append(make("ul", { class: "links" }, make("li", {}, make("a", { href: `#${title.id}` }, table))));
      section.append(title, grid);
    } else {
      const links = [...grid.children].map((figure, i) => make("li", {},
        make("a", { href: `#${figure.id}`, onclick: () => { figure.open = true; } }, here[i].title)));
      contents.append(make("ul", { class: "links" }, ...links));
      section.append(grid);
    }
  }
  window.addEventListener("beforeprint", () => section.querySelectorAll("details").forEach((figure) => { figure.open = true; }));
}

results();
figures();
runList();
differences();
header();
filters();
performance.mark("report-shown");

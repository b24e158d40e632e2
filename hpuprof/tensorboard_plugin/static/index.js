// The hpuprof tab. TensorBoard imports this module into a frame of its own and calls render(). Everything it shows comes from
// the routes beside it and enters the page as text; nothing is fetched from anywhere else.

const POLL_BUSY_MS = 1500;
const POLL_IDLE_MS = 6000;
const SANDBOX = "allow-scripts allow-popups allow-downloads";

const state = {columns: [], runs: [], looked: false, problem: "", logdir: "", view: "run", run: null, base: null, sort: ["name", 1], shown: "", compared: ""};
let place;

// Make an element: attributes that begin with "on" are listeners, children are elements or text.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const done = () => state.runs.filter((run) => run.sentence);
const newest = (runs) => runs.reduce((best, run) => (!best || run.changed > best.changed ? run : best), undefined);
const chosen = () => state.runs.find((run) => run.key === state.run) || newest(done()) || newest(state.runs);
const query = (path, pairs) => path + "?" + new URLSearchParams(pairs).toString();

async function getJson(path) {
  const answer = await fetch(path, {credentials: "same-origin"});
  if (!answer.ok) throw new Error(`${path.split("?")[0]}: ${answer.status}`);
  return answer.json();
}

async function poll() {
  let wait = POLL_IDLE_MS;
  try {
    const answer = await getJson("runs");
    Object.assign(state, {columns: answer.columns, runs: answer.runs, looked: answer.looked, problem: answer.problem, logdir: answer.logdir, lost: ""});
    // What is being read stays, whatever comes; nothing chosen means the newest.
    if (!state.run && done().length) state.run = chosen().key;
    if (!answer.looked || answer.runs.some((run) => run.status === "waiting" || run.status === "analyzing")) wait = POLL_BUSY_MS;
  } catch (error) {
    state.lost = `TensorBoard does not answer (${error.message})`;
  }
  draw();
  setTimeout(poll, wait);
}

function status() {
  if (state.lost || state.problem) return state.lost || state.problem;
  const busy = state.runs.filter((run) => run.status === "analyzing");
  const waiting = state.runs.filter((run) => run.status === "waiting").length;
  const parts = busy.map((run) => `analyzing ${run.name}: ${run.progress}`);
  if (waiting) parts.push(`${waiting} waiting`);
  const failed = state.runs.filter((run) => run.status === "failed").length;
  if (failed) parts.push(`${failed} failed`);
  if (!parts.length) parts.push(state.looked ? `${state.runs.length} run${state.runs.length === 1 ? "" : "s"}` : "looking for runs");
  return parts.join(" · ");
}

function figures(run) {
  const shown = state.columns.filter((column) => column.number && run.cells[column.name].value !== null);
  return make("ul", {class: "figures"}, ...shown.map((column) =>
    make("li", {title: column.definition}, make("span", {class: "value"}, run.cells[column.name].text), make("span", {class: "label"}, column.title))));
}

function plan(run) {
  if (!run.plan.length) return run.nothing ? make("p", {}, run.nothing) : null;
  return make("div", {}, make("h2", {}, "What to change first"), run.base ? make("p", {class: "dim"}, run.base) : null, make("ol", {class: "findings"}, ...run.plan.map((line) =>
    make("li", {}, make("b", {}, line.what), make("br"), line.gives, ...line.explains.map((text) => make("p", {class: "dim"}, `Explains ${text}`))))), make("p", {}, run.end));
}

function findings(run) {
  if (!run.findings.length) return null;
  const rest = run.more_findings ? make("p", {class: "dim"}, `and ${run.more_findings} more in the report`) : null;
  return make("div", {}, make("h2", {}, run.findings_title), make("ol", {class: "findings"}, ...run.findings.map((finding) =>
    make("li", {}, make("b", {}, finding.title), " ", make("span", {class: "code"}, finding.code), make("br"), finding.evidence))), rest);
}

function failure(run) {
  return make("div", {class: "error", role: "alert"}, make("b", {}, `${run.name} could not be analyzed. `), run.error, run.hint ? make("p", {class: "dim"}, run.hint) : null);
}

function runView() {
  const run = chosen();
  if (!run) return [];
  const parts = [];
  if (run.error) parts.push(failure(run));
  if (!run.sentence) {
    if (!run.error) parts.push(make("h1", {}, run.name), make("p", {class: "dim"}, `${run.status}${run.progress ? `: ${run.progress}` : ""}`), make("progress", {"aria-label": "analysis"}));
    return parts;
  }
  parts.push(make("h1", {id: "verdict"}, run.sentence), make("p", {class: "dim"}, `${run.population} · ${run.name}`));
  parts.push(plan(run));
  if (run.graph_mode) parts.push(make("p", {class: "verdict-graph"}, make("b", {}, "Would graph mode help? "), run.graph_mode));
  if (run.caution) parts.push(make("p", {}, run.caution));
  parts.push(figures(run), findings(run));
  parts.push(make("p", {}, make("a", {href: query("report", {run: run.key}), target: "_blank", rel: "noopener"}, "open report in a new window"), " · ",
    make("a", {href: query("report.json", {run: run.key}), target: "_blank", rel: "noopener"}, "as JSON")));
  return parts.filter(Boolean);
}

// The frame is kept while its report is the newest: a report must not lose its place when the tab polls. Another report gets
// another frame, seen when it has come: no run's numbers stand below another one's verdict.
function reportFrame() {
  const run = chosen();
  const wanted = state.view === "run" && run && run.sentence ? query("report", {run: run.key, version: run.version}) : "";
  const old = document.getElementById("report");
  if (!wanted || state.shown === wanted) {
    old.hidden = !wanted || !old.dataset.loaded;
    return;
  }
  state.shown = wanted;
  const frame = make("iframe", {id: "report", hidden: true, sandbox: SANDBOX, title: `Report of ${run.name}`, src: wanted, onload: () => {
    frame.dataset.loaded = wanted;
    frame.hidden = state.view !== "run";
  }});
  old.replaceWith(frame);
}

// Columns of the table of runs: those that the server names, between the run and its state.
const columns = () => [{name: "name", title: "run"}, ...state.columns, {name: "status", title: "state"}];
const value = (run, name) => run.cells[name]?.value ?? (name === "name" || name === "status" ? run[name] : null);

function cell(run, {name, number}) {
  if (name === "name") return make("td", {class: "run"}, make("button", {type: "button", onclick: () => open(run.key)}, run.name));
  if (name === "status") return make("td", {}, run.status + (run.progress ? `: ${run.progress}` : ""));
  return make("td", {class: number ? "r" : null}, run.cells[name]?.text ?? "");
}

function open(key) {
  state.run = key;
  state.view = "run";
  draw();
}

function runsView() {
  const [by, direction] = state.sort;
  const ordered = [...state.runs].sort((a, b) => {
    const [x, y] = [value(a, by), value(b, by)];
    if (x === y) return a.name < b.name ? -1 : 1;
    if (x === undefined || x === null || x === "") return 1;
    if (y === undefined || y === null || y === "") return -1;
    return (x < y ? -1 : 1) * direction;
  });
  const head = columns().map(({name, title, number, definition}) => make("th", {scope: "col", class: number ? "r" : null, title: definition, "aria-sort": by === name ? (direction > 0 ? "ascending" : "descending") : null},
    make("button", {type: "button", onclick: () => { state.sort = [name, by === name ? -direction : 1]; draw(); }}, title + (by === name ? (direction > 0 ? " ▲" : " ▼") : ""))));
  const rows = ordered.map((run) => make("tr", {class: run === chosen() ? "chosen" : null}, ...columns().map((column) => cell(run, column))));
  return [make("h1", {}, "Runs"), make("div", {class: "scroll"}, make("table", {id: "runs"}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)))];
}

// The comparison is asked for when the reports or the base change, and drawn when it comes.
function compareView() {
  const runs = done();
  if (runs.length < 2) return [make("h1", {}, "Compare"), make("p", {}, "A comparison needs at least two analyzed runs.")];
  const base = runs.find((run) => run.key === state.base) || runs[0];
  const wanted = query("compare", [...runs.map((run) => ["run", run.key]), ["base", base.key]]) + "#" + runs.map((run) => run.version).join();
  if (state.compared !== wanted) {
    state.compared = wanted;
    getJson(wanted.split("#")[0]).then((answer) => { if (state.compared === wanted) { state.comparison = answer; draw(); } })
      .catch((error) => { state.compared = ""; state.lost = error.message; });
  }
  const choice = make("select", {id: "base", onchange: (event) => { state.base = event.target.value; draw(); }},
    ...runs.map((run) => make("option", {value: run.key, selected: run === base}, run.name)));
  const parts = [make("h1", {}, "Compare"), make("p", {}, make("label", {}, "relative to ", choice))];
  const table = state.comparison;
  if (!table) return parts;
  const verdicts = make("tr", {}, make("td", {}, "bound by"), ...runs.map((run) => make("td", {class: "r"}, run.cells.bound.text)));
  const rows = table.rows.map((row) => make("tr", {}, make("td", {title: row.definition}, row.name), ...row.cells.map((found) =>
    make("td", {class: "r"}, found.text, found.change === null ? null : make("span", {class: found.better === null ? "dim" : found.better ? "good" : "bad"}, ` ${found.change}`)))));
  parts.push(make("div", {class: "scroll"}, make("table", {id: "comparison"}, make("thead", {}, make("tr", {}, make("th", {scope: "col"}, "metric"), ...table.runs.map((name) => make("th", {scope: "col", class: "r"}, name)))), make("tbody", {}, verdicts, ...rows))));
  return parts;
}

function empty() {
  if (state.problem && !state.runs.length) return [make("h1", {}, "No runs to show"), make("p", {}, state.problem)];
  if (!state.looked) return [make("h1", {}, "Looking for runs"), make("progress", {"aria-label": "search"})];
  return [make("h1", {}, "No traces yet"), make("p", {}, `hpuprof looks for *.pt.trace.json[.gz] below ${state.logdir}, and again every few seconds.`)];
}

function bar() {
  const tab = (view, label) => make("button", {type: "button", "aria-pressed": String(state.view === view), onclick: () => { state.view = view; draw(); }}, label);
  const run = chosen();
  const choice = make("select", {id: "run", onchange: (event) => open(event.target.value)}, ...state.runs.map((each) => make("option", {value: each.key, selected: each === run}, each.name)));
  return [make("span", {class: "name"}, "hpuprof"), tab("run", "Report"), tab("runs", "Runs"), tab("compare", "Compare"),
    state.runs.length ? make("label", {}, "run ", choice) : null, make("span", {class: "status", role: "status"}, status())].filter(Boolean);
}

function draw() {
  const drawn = JSON.stringify([state.runs, state.view, state.run, state.base, state.sort, state.looked, state.problem, state.lost, state.comparison]);
  if (state.drawn === drawn) return;
  state.drawn = drawn;
  const focused = document.activeElement?.id;
  document.getElementById("bar").replaceChildren(...bar());
  const views = {run: runView, runs: runsView, compare: compareView};
  place.replaceChildren(...(state.runs.length ? views[state.view]() : empty()));
  reportFrame();
  if (focused) document.getElementById(focused)?.focus();
}

export async function render() {
  document.documentElement.lang = "en";
  document.head.append(make("link", {rel: "stylesheet", href: "style.css"}));
  place = make("div", {id: "place"});
  document.body.append(make("div", {class: "bar", id: "bar"}), make("main", {}, place, make("iframe", {id: "report", hidden: true, sandbox: SANDBOX, title: "Report"})));
  draw();
  await poll();
}

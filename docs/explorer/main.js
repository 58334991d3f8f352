// The page: the operator at the left, what becomes of it at the right. The compiler is asked after
// each change, in a worker; while it works, only the last change waits.

import { makeEditor, makeViewer, showKernel, underline } from "./editor.js";
import { openDevice, run } from "./gpu.js";
import { readLink, writeLink } from "./link.js";

const PAUSE = 300; // Milliseconds without a key, after which the compiler is asked.
const OPTIONS = ["tensors", "attributes", "dims", "profile", "shader_model"];
const REPORT = "report";
const RUN = "run";

const element = (id) => document.getElementById(id);

// The compiler -----------------------------------------------------------------------------------

const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const waiting = new Map();
let asked = 0;

worker.onmessage = ({ data }) => {
  if (data.state) showState(data.state === "ready" ? "Ready" : data.state);
  else if (data.id === undefined) fail(data.failure);
  else {
    const { resolve, reject } = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.failure === undefined) resolve(JSON.parse(data.answer));
    else reject(new Error(data.failure));
  }
};
worker.onerror = (event) => fail(event.message || "the worker cannot be loaded");

function ask(kind, fields) {
  return new Promise((resolve, reject) => {
    asked += 1;
    waiting.set(asked, { resolve, reject });
    worker.postMessage({ id: asked, request: JSON.stringify({ kind, ...fields }) });
  });
}

function fail(message) {
  showState("Failed");
  showProblems([{ message, severity: "error", code: null, place: null, notes: [] }]);
}

// What is shown ----------------------------------------------------------------------------------

let about;
let editor;
let viewer;
let programs = {};
let tab = "hlsl";
let file = 0;

function showState(text) {
  element("state").textContent = text;
}

function options() {
  return Object.fromEntries(OPTIONS.map((name) => [name, element(name).value.trim()]));
}

function request() {
  return { text: editor.state.doc.toString(), subject: element("subject").value, ...options() };
}

function fill(select, entries) {
  const chosen = select.value;
  select.replaceChildren(...entries.map(([value, title]) => new Option(title, value)));
  if (entries.some(([value]) => value === chosen)) select.value = chosen;
}

function place(text) {
  editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } });
}

function show(shown) {
  programs = {}; // They are of another text.
  for (const name of OPTIONS) element(name).value = shown[name] ?? "";
  if (!element("shader_model").value) element("shader_model").selectedIndex = 0;
  fill(element("subject"), shown.subject ? [[shown.subject, shown.subject]] : []);
  place(shown.text);
}

function add(parent, kind, text, kindOf = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  made.className = kindOf;
  parent.append(made);
  return made;
}

function showProblems(found) {
  const list = element("problems");
  list.replaceChildren();
  for (const { message, severity, code, notes, place: where } of found) {
    const item = add(list, "li", "");
    const line = where ? editor.state.doc.lineAt(Math.min(where[0], editor.state.doc.length)) : null;
    add(item, "span", `${line ? `Line ${line.number}: ` : ""}${message}`, severity);
    if (line) {
      item.onclick = () => {
        editor.dispatch({ selection: { anchor: where[0] }, scrollIntoView: true });
        editor.focus();
      };
    }
    if (code) {
      item.append(" ");
      const more = add(item, "button", code);
      more.type = "button";
      more.onclick = async (event) => {
        event.stopPropagation();
        const { text } = await ask("explain", { code });
        if (!item.querySelector("pre")) add(item, "pre", text);
      };
    }
    for (const note of notes) add(item, "span", note.message, "note");
  }
}

function showTabs() {
  const tabs = [...about.targets.map(({ name, title }) => [name, title]),
    [REPORT, "Fusion"], [RUN, "Run"]];
  element("tabs").replaceChildren();
  for (const [name, title] of tabs) {
    const button = add(element("tabs"), "button", title);
    button.type = "button";
    button.role = "tab";
    button.dataset.tab = name;
    button.onclick = () => openTab(name);
  }
}

function openTab(name) {
  [tab, file] = [name, 0];
  showOutput();
  if (tab === REPORT) refreshReport();
}

function showOutput() {
  for (const button of element("tabs").children) {
    button.setAttribute("aria-selected", String(button.dataset.tab === tab));
  }
  const target = about.targets.some(({ name }) => name === tab);
  element("viewer").hidden = !target;
  element("report").hidden = tab !== REPORT;
  element("run").hidden = tab !== RUN;
  element("files").replaceChildren();
  element("command").textContent = "";
  if (!target) return;
  const { files = {}, refused, command = "" } = programs[tab] ?? {};
  element("command").textContent = command;
  const names = Object.keys(files);
  file = Math.min(file, Math.max(names.length - 1, 0));
  names.forEach((name, number) => {
    const button = add(element("files"), "button", name);
    button.type = "button";
    button.setAttribute("aria-pressed", String(number === file));
    button.onclick = () => {
      file = number;
      showOutput();
    };
  });
  showKernel(viewer, tab, refused ? `// ${refused.replaceAll("\n", "\n// ")}` : files[names[file]] ?? "");
}

// Compiling --------------------------------------------------------------------------------------

let timer;
let changes = 0;
let working = false;

function changed() {
  changes += 1;
  const example = about.examples[element("example").value];
  if (example && example.text !== editor.state.doc.toString()) element("example").value = "";
  clearTimeout(timer);
  timer = setTimeout(refresh, PAUSE);
}

async function refresh() {
  if (working) return; // What works now goes on with what has changed since.
  working = true;
  try {
    for (let seen = -1; seen !== changes; ) {
      seen = changes;
      await compile();
    }
  } catch (error) {
    console.error(error);
    fail(`This is a fault of dmlc, please report it: ${error.message.trim().split("\n").pop()}`);
  } finally {
    working = false;
  }
}

async function compile() {
  const { text } = request();
  const checked = await ask("check", { text });
  const named = checked.subjects ?? [];
  let found = checked.diagnostics;
  if (checked.subjects) fill(element("subject"), named.map((name) => [name, name]));
  const wrong = found.some(({ severity }) => severity === "error");
  if (!wrong && named.length) {
    showState("Compiling");
    const begun = performance.now();
    const made = await ask("compile", request());
    programs = made.programs ?? {};
    const kept = new Set(found.map(({ message }) => message));
    found = [...found, ...made.diagnostics.filter(({ message }) => !kept.has(message))];
    if (made.programs) showState(`Compiled in ${Math.round(performance.now() - begun)} ms`);
  }
  if (request().text === text) underline(editor, found);
  showProblems(found);
  const stale = found.some(({ severity }) => severity === "error");
  if (stale) showState(programs[tab] ? "Errors; the kernels are of the text before" : "Errors");
  element("viewer").classList.toggle("stale", stale);
  showOutput();
  if (tab === REPORT) await refreshReport();
  history.replaceState(null, "", `#${await writeLink(request())}`);
}

let picture = "";

async function refreshReport() {
  const made = await ask("report", request());
  const box = element("report");
  box.replaceChildren();
  URL.revokeObjectURL(picture);
  if (!made.svg) {
    for (const { message } of made.diagnostics) add(box, "p", message);
    return;
  }
  picture = URL.createObjectURL(new Blob([made.svg], { type: "image/svg+xml" }));
  const image = add(box, "img", "");
  image.src = picture;
  image.alt = "The kernels before and after fusion; the text below says the same";
  image.style.maxWidth = "100%";
  add(box, "pre", made.text);
}

// Running ----------------------------------------------------------------------------------------

async function start() {
  const box = element("outcome");
  box.replaceChildren();
  element("start").disabled = true;
  try {
    const { device, description } = await openDevice();
    const plan = await ask("plan", { ...request(), device: description, seed: changes });
    if (!plan.kernels) {
      for (const { message, notes } of plan.diagnostics) {
        add(box, "p", [message, ...notes.map((note) => note.message)].join(". "), "fail");
      }
      return;
    }
    const { results, milliseconds } = await run(device, plan);
    const judged = await ask("judge", { results });
    device.destroy();
    const sizes = Object.entries(judged.sizes).map(([name, size]) => `${name} = ${size}`);
    add(box, "p", [`On ${judged.device}`, ...sizes, `${milliseconds.toFixed(1)} ms with the launch`].join(", "));
    for (const result of judged.results) showResult(box, result);
  } catch (error) {
    add(box, "p", error.message, "fail");
  } finally {
    element("start").disabled = false;
  }
}

function showResult(box, { name, sizes, within, said, first, actual, expected }) {
  const title = add(box, "h3", `${name} [${sizes.join(", ")}] `);
  add(title, "span", within ? "PASS" : "FAIL", within ? "pass" : "fail");
  add(box, "p", said);
  const table = add(box, "table", "");
  const head = add(table, "tr", "");
  for (const text of ["element", "GPU", "reference"]) add(head, "th", text);
  actual.forEach((value, number) => {
    const row = add(table, "tr", "");
    for (const text of [first + number, value, expected[number]]) add(row, "td", String(text));
  });
}

// The start --------------------------------------------------------------------------------------

async function copyLink() {
  history.replaceState(null, "", `#${await writeLink(request())}`);
  await navigator.clipboard.writeText(location.href);
  showState("Link copied");
}

async function open() {
  about = await (await fetch(new URL("about.json", import.meta.url))).json();
  const titles = about.examples.map(({ title }, number) => [String(number), title]);
  fill(element("example"), [["", "Your own"], ...titles]);
  fill(element("shader_model"), about.shader_models.map((name) => [name, name]));
  element("profile").append(...about.profiles.map((name) => new Option(name.toUpperCase(), name)));
  element("documentation").hidden = !about.documentation;
  if (about.documentation) element("documentation").href = about.documentation;
  showTabs();
  editor = makeEditor(element("editor"), about.words, {
    changed,
    suggest: (text, at) => ask("suggest", { text, at }),
    tell: (text, at) => ask("tell", { text, at }),
  });
  viewer = makeViewer(element("viewer"));
  window.explorer = { editor, viewer }; // For consoles, and for the page's test.
  element("example").onchange = () => {
    const example = about.examples[element("example").value];
    if (example) show(example);
  };
  element("subject").onchange = changed;
  element("options").oninput = changed;
  element("options").onsubmit = (event) => event.preventDefault();
  element("link").onclick = copyLink;
  element("start").onclick = start;
  window.onhashchange = showLink;
  if (!(await showLink())) {
    element("example").value = "0";
    show(about.examples[0]);
  }
  showOutput();
}

async function showLink() {
  const found = location.hash.length > 1 ? await readLink(location.hash.slice(1)) : null;
  if (found) show(found);
  return found !== null;
}

open().catch((error) => showState(String(error)));

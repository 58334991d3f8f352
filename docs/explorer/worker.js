// The compiler's side: Python in a Web Worker. It loads Pyodide, NumPy and dmlc from beside the
// page, and answers one request after another.

import { loadPyodide } from "./pyodide/pyodide.mjs";

const here = new URL(".", import.meta.url).href;

async function fetchBytes(name) {
  const response = await fetch(here + name);
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

function say(state) {
  postMessage({ state });
}

async function start() {
  say("Loading Python");
  const { numpy } = await (await fetch(`${here}about.json`)).json();
  const archives = [fetchBytes(`pyodide/${numpy}`), fetchBytes("dmlc.zip")];
  const python = await loadPyodide({ indexURL: `${here}pyodide/` });
  say("Loading NumPy and dmlc");
  const [numbers, compiler] = await Promise.all(archives);
  python.unpackArchive(numbers, "wheel");
  python.unpackArchive(compiler, "zip", { extractDir: "/explorer" });
  say("Starting dmlc");
  return python.runPython(`
import sys
sys.path.insert(0, "/explorer")
from docs.explorer.compiler import answer
answer
`);
}

const started = start();
started.then(
  () => say("ready"),
  (error) => postMessage({ failure: String(error) }),
);

onmessage = async ({ data: { id, request } }) => {
  try {
    const answer = await started;
    postMessage({ id, answer: answer(request) });
  } catch (error) {
    postMessage({ id, failure: String(error) });
  }
};

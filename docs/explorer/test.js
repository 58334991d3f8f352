// Tests the built page in headless Chromium: `node test.js FOLDER CHROMIUM EXPECTED`. EXPECTED is a
// folder with what `dmlc compile` wrote of the first example. The page is served from here.

import { readFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import puppeteer from "puppeteer-core";

const [folder, chromium, expected] = process.argv.slice(2);
const TYPES = {
  ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".json": "application/json",
  ".mjs": "text/javascript", ".wasm": "application/wasm",
};
const SLOW = { timeout: 170_000, polling: 100 };

function check(condition, message) {
  if (!condition) throw new Error(message);
  console.log(`passed: ${message}`);
}

const server = createServer(async (request, response) => {
  const asked = normalize(new URL(request.url, "http://localhost").pathname);
  const path = asked === "/" ? "/index.html" : asked;
  try {
    const content = await readFile(join(folder, path));
    const type = TYPES[extname(path)] ?? "application/octet-stream";
    response.writeHead(200, { "Content-Type": type }).end(content);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const address = `http://127.0.0.1:${server.address().port}/`;

const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan", "--use-angle=swiftshader"],
});
try {
  const page = await browser.newPage();
  await page.setViewport({ width: 1500, height: 950 });
  const faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (said) => said.type() === "error" && faults.push(said.text()));
  page.on("request", (request) => {
    if (!/^(http:\/\/127\.0\.0\.1:|blob:|data:)/.test(request.url())) {
      faults.push(`it asks for ${request.url()}`);
    }
  });
  const text = (selector) => page.$eval(selector, (found) => found.textContent);
  const kernel = () => page.evaluate(() => window.explorer.viewer.state.doc.toString());
  const compiled = (wanted) =>
    page.waitForFunction(
      (start) => document.getElementById("state").textContent.startsWith(start), SLOW, wanted,
    );
  const open = (tab) => page.click(`#tabs [data-tab="${tab}"]`);
  // Typed as by a person: all is selected, and each key changes the text.
  const type = async (typed) => {
    await page.click("#editor .cm-content");
    await page.keyboard.down("Control");
    await page.keyboard.press("KeyA");
    await page.keyboard.up("Control");
    await page.keyboard.press("Backspace");
    await page.keyboard.sendCharacter(typed);
  };

  const begun = performance.now();
  await page.goto(address);
  await compiled("Compiled");
  console.log(`The first kernels are there after ${((performance.now() - begun) / 1000).toFixed(1)} s.`);

  // The same bytes as from the command line.
  const targets = { ".hlsl": "hlsl", ".cl": "opencl", ".wgsl": "wgsl" };
  for (const name of (await readdir(expected)).filter((each) => extname(each) in targets)) {
    await open(targets[extname(name)]);
    check((await kernel()) === readFileSync(join(expected, name), "utf8"),
      `${name} is what dmlc compile writes`);
  }
  await open("hlsl");
  await page.screenshot({ path: join(folder, "explorer.png") });

  // An operator that is typed.
  const own = (formula) => `operator SOFT_STEP {
    tensors {
        | Tensor | Kind   | Ranks  | Types    |
        | ------ | ------ | ------ | -------- |
        | src    | Input  | 1 to 8 | f32, f16 |
        | dst    | Output | 1 to 8 | f32, f16 |
    }
    constraints { *src* and *dst* must have the same *DataType* and *Sizes*. }
    compute { dst = ${formula} }
}
`;
  await type(own("src / (1 + abs(src))"));
  await page.waitForFunction(
    () => document.getElementById("command").textContent.includes("SOFT_STEP"), SLOW);
  const made = await kernel();
  check(made.includes("SOFT_STEP") && made.includes("abs("), "a typed operator has its HLSL");
  const link = page.url();
  check(link.length > 100, "the address has the operator");

  // A mistake, underlined where it stands.
  await type(own("src / (1 + abs(scr))"));
  await page.waitForSelector("#editor .cm-lintRange-error", SLOW);
  const marked = await page.$$eval("#editor .cm-lintRange-error",
    (found) => found.map((each) => each.textContent).join(""));
  check(marked === "scr", `the mistake is underlined: ${marked}`);
  const problems = await text("#problems");
  check(problems.includes("unknown name 'scr'") && problems.includes("did you mean 'src'"),
    `and said with its cure: ${problems}`);
  await page.screenshot({ path: join(folder, "mistake.png") });

  // The link leads back, in a page of its own.
  const again = await browser.newPage();
  await again.goto(link);
  await again.waitForFunction(
    () => document.getElementById("command").textContent.includes("SOFT_STEP"), SLOW);
  check(true, "the address leads back to the operator");
  await again.close();
  await page.bringToFront();

  // What may be written, and what is known of a word.
  await page.select("#example", "0");
  await compiled("Compiled");
  await page.evaluate(() => {
    const { editor } = window.explorer;
    editor.dispatch({ selection: { anchor: editor.state.doc.toString().indexOf("X > 0") } });
    editor.focus();
  });
  await page.keyboard.type("In");
  await page.waitForSelector(".cm-tooltip-autocomplete", SLOW);
  check((await text(".cm-tooltip-autocomplete")).includes("InputTensor"), "tensors are offered");
  await page.keyboard.press("Escape");
  const [x, y] = await page.evaluate(() => {
    const { editor } = window.explorer;
    const { left, top } = editor.coordsAtPos(editor.state.doc.toString().indexOf("dY =") + 6);
    return [left, top + 5];
  });
  await page.mouse.move(x, y);
  await page.waitForSelector(".cm-tooltip-hover", SLOW);
  check((await text(".cm-tooltip-hover")).includes("input tensor"), "a word is explained");
  await page.select("#example", "0");
  await compiled("Compiled");
  await open("report");
  await page.waitForSelector("#report img", SLOW);
  check((await text("#report")).includes("InputTensor"), "what fusion made is drawn and said");

  // Runs of every example that compiles.
  await open("run");
  const gpu = await page.evaluate(async () => (await navigator.gpu?.requestAdapter()) ? true : false);
  if (!gpu) console.log("This Chromium has no WebGPU: the page is asked to say so.");
  const titles = await page.$$eval("#example option", (found) => found.map((each) => each.text));
  for (const [number, title] of titles.slice(1).entries()) {
    await page.evaluate(() => (document.getElementById("state").textContent = ""));
    await page.select("#example", "");
    await page.select("#example", String(number));
    await page.waitForFunction(
      () => /^(Compiled|Errors)/.test(document.getElementById("state").textContent), SLOW);
    if ((await text("#state")).startsWith("Errors")) continue; // Its mistakes are what it shows.
    await page.click("#start");
    await page.waitForFunction(() => !document.getElementById("start").disabled, SLOW);
    const outcome = await text("#outcome");
    if (gpu) check(/PASS/.test(outcome) && !/FAIL/.test(outcome), `a run of '${title}' is right`);
    else check(outcome.includes("WebGPU"), "without WebGPU the page says why");
    if (number === 0) await page.screenshot({ path: join(folder, "run.png") });
  }
  check(faults.length === 0, `no fault and no request elsewhere${faults.map((each) => `\n  ${each}`)}`);
} finally {
  await browser.close();
  server.close();
}

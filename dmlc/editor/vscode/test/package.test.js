// What is packed: the files of the .vsix, and the extension as it is bundled in it.

"use strict";

const assert = require("node:assert");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const Module = require("node:module");
const path = require("node:path");
const { test } = require("node:test");

const FOLDER = path.join(__dirname, "..");
const PYTHON = process.env.DMLC_PYTHON ?? "python3";

test("the archive has these files", () => {
  const script = "import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep='\\n')";
  const names = execFileSync(PYTHON, ["-c", script, path.join(FOLDER, "dmlc.vsix")], {
    encoding: "utf8",
  });
  assert.deepEqual(names.trim().split("\n").sort(), [
    "[Content_Types].xml",
    "extension.vsixmanifest",
    "extension/LICENSE.txt",
    "extension/dmlc.tmLanguage.json",
    "extension/language.json",
    "extension/out/extension.js",
    "extension/package.json",
    "extension/readme.md",
  ]);
});

test("every file that package.json names is there", () => {
  const { main, contributes } = require("../package.json");
  const named = [
    main,
    ...contributes.languages.map((language) => language.configuration),
    ...contributes.grammars.map((grammar) => grammar.path),
  ];
  for (const name of named) {
    assert.ok(fs.existsSync(path.join(FOLDER, name)), name);
  }
});

test("the bundle loads, and needs nothing but VS Code", () => {
  // Any class of VS Code: the client extends some of them while it loads.
  const anything = new Proxy(class {}, { get: (base, name) => base[name] ?? class {} });
  const load = Module._load;
  Module._load = (name, ...rest) => {
    if (name === "vscode") {
      return anything;
    }
    assert.ok(Module.isBuiltin(name) || path.isAbsolute(name), name);
    return load(name, ...rest);
  };
  try {
    const bundle = load(path.join(FOLDER, "out/extension.js"), module, false);
    assert.deepEqual(Object.keys(bundle).sort(), ["activate", "deactivate"]);
  } finally {
    Module._load = load;
  }
});

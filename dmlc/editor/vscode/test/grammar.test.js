// The TextMate grammar as VS Code reads it, on the operators of the repository.

"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { before, test } = require("node:test");
const oniguruma = require("vscode-oniguruma");
const textmate = require("vscode-textmate");

const ROOT = process.env.DMLC_ROOT ?? path.join(__dirname, "../../..");
const GRAMMAR = path.join(__dirname, "../dmlc.tmLanguage.json");
let grammar;

before(async () => {
  const wasm = require.resolve("vscode-oniguruma/release/onig.wasm");
  await oniguruma.loadWASM(fs.readFileSync(wasm).buffer);
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => textmate.parseRawGrammar(fs.readFileSync(GRAMMAR, "utf8"), GRAMMAR),
  });
  grammar = await registry.loadGrammar("source.dml");
});

/** The words of a text with their innermost scopes. */
function read(text) {
  const found = [];
  let state = textmate.INITIAL;
  for (const line of text.split("\n")) {
    const { tokens, ruleStack } = grammar.tokenizeLine(line, state);
    state = ruleStack;
    for (const { startIndex, endIndex, scopes } of tokens) {
      found.push([line.slice(startIndex, endIndex), scopes]);
    }
  }
  return found;
}

function scopeOf(text, word) {
  const [, scopes] = read(text).find(([found]) => found.trim() === word);
  return scopes.at(-1);
}

test("words have the scopes that colour them", () => {
  const text = [
    "operator RELU { // rectifies",
    '    "What is positive."',
    "    tensors {",
    "        | Tensor | Kind  | Types   |",
    "        | X      | Input | FLOAT32 |",
    "    }",
    "    compute { Y[i...] = X[i...] > 0.5 ? max(X[i...], inf) : 0 }",
    "}",
  ].join("\n");
  const expected = {
    operator: "storage.type.dml",
    RELU: "entity.name.type.dml",
    "// rectifies": "comment.line.double-slash.dml",
    tensors: "keyword.other.dml",
    "|": "punctuation.separator.table.dml",
    Input: "storage.modifier.dml",
    FLOAT32: "support.type.dml",
    compute: "keyword.other.dml",
    Y: "variable.other.dml",
    ">": "keyword.operator.comparison.dml",
    "0.5": "constant.numeric.dml",
    max: "support.function.dml",
    inf: "constant.language.dml",
  };
  for (const [word, scope] of Object.entries(expected)) {
    assert.equal(scopeOf(text, word), scope, word);
  }
});

test("a word of the language is a name where the language has a name", () => {
  const text = "operator X { compute { example = mean + output } }";
  assert.equal(scopeOf(text, "example"), "variable.other.dml");
  assert.equal(scopeOf(text, "mean"), "variable.other.dml");
});

test("everything in the examples and the library has a scope, and every file ends outside", () => {
  const folders = ["examples", ...["directml", "onednn"].map((name) => `dmlc/library/${name}`)];
  let count = 0;
  for (const folder of folders) {
    for (const name of fs.readdirSync(path.join(ROOT, folder))) {
      if (!name.endsWith(".dml")) {
        continue;
      }
      count += 1;
      const text = fs.readFileSync(path.join(ROOT, folder, name), "utf8");
      const bare = read(text).filter(([word, scopes]) => word.trim() && scopes.length === 1);
      assert.deepEqual(bare, [], `${folder}/${name}`);
    }
  }
  assert.ok(count > 100, `${count} files`);
});

// The extension with a `vscode` of its own, against the real `dmlc lsp`.

"use strict";

const assert = require("node:assert");
const { spawn } = require("node:child_process");
const Module = require("node:module");
const { after, before, beforeEach, test } = require("node:test");
const rpc = require("vscode-languageserver-protocol/node");

const COMMAND = process.env.DMLC_COMMAND ?? "dmlc";
const URI = "file:///nowhere/extension.dml";
const TEXT = `operator DOUBLE {
    tensors {
        | Tensor | Kind   | Types   |
        | X      | Input  | FLOAT32 |
        | Y      | Output | FLOAT32 |
    }
    compute { Y = 2 * X }
}
`;

/** Speaks to the server as vscode-languageclient does: it needs no more of VS Code. */
class Client {
  constructor(_id, _name, server, options) {
    this.server = server;
    this.selector = options.documentSelector;
  }

  createDefaultErrorHandler() {
    return { error: () => ({}), closed: () => ({}) };
  }

  async start() {
    this.child = await this.server();
    await this.initialize(); // Waits for ever where the server leaves.
    Client.started = this;
  }

  async initialize() {
    this.connection = rpc.createProtocolConnection(
      new rpc.StreamMessageReader(this.child.stdout),
      new rpc.StreamMessageWriter(this.child.stdin),
    );
    this.problems = new Map();
    this.connection.onNotification(rpc.PublishDiagnosticsNotification.type, (found) =>
      this.problems.set(found.uri, found.diagnostics),
    );
    this.connection.listen();
    const given = { processId: null, rootUri: null, capabilities: {} };
    this.offers = await this.connection.sendRequest(rpc.InitializeRequest.type, given);
    await this.connection.sendNotification(rpc.InitializedNotification.type, {});
  }

  isRunning() {
    return true;
  }

  sendRequest(method, params) {
    return this.connection.sendRequest(method, params);
  }

  async stop() {
    const left = new Promise((resolve) => this.child.on("exit", resolve));
    await this.connection.sendRequest(rpc.ShutdownRequest.type);
    await this.connection.sendNotification(rpc.ExitNotification.type);
    assert.equal(await left, 0);
    this.connection.dispose();
  }

  open(text) {
    const textDocument = { uri: URI, languageId: "dml", version: 1, text };
    return this.connection.sendNotification(rpc.DidOpenTextDocumentNotification.type, {
      textDocument,
    });
  }
}

/** What the extension uses of VS Code, and what it did with it. */
function makeEditor(settings) {
  const seen = { settings, commands: {}, errors: [], messages: [], documents: [], context: [] };
  const editor = {
    document: { languageId: "dml", uri: { toString: () => URI } },
    selection: { active: { line: 0, character: 10 } },
  };
  seen.vscode = {
    ViewColumn: { Beside: -2 },
    commands: {
      registerCommand: (name, run) => {
        seen.commands[name] = run;
        return { dispose() {} };
      },
      executeCommand: async (...given) => seen.messages.push(given),
    },
    env: { clipboard: { writeText: async (text) => seen.messages.push(["copied", text]) } },
    languages: { getLanguages: async () => ["hlsl", "cpp", "dml"] },
    window: {
      activeTextEditor: editor,
      showErrorMessage: async (message) => {
        seen.errors.push(message);
        return seen.choice;
      },
      showInformationMessage: async (message) => seen.messages.push(message),
      showTextDocument: async (document, options) => seen.documents.push([document, options]),
    },
    workspace: {
      getConfiguration: () => ({ get: (name, usual) => seen.settings[name] ?? usual }),
      onDidChangeConfiguration: (run) => {
        seen.changed = run;
        return { dispose() {} };
      },
      openTextDocument: async (document) => document,
    },
  };
  return seen;
}

let seen;
let extension;
const load = Module._load;

function activate() {
  seen = makeEditor({ path: COMMAND });
  Module._load = (name, ...rest) => {
    const own = {
      vscode: seen.vscode,
      "vscode-languageclient/node": { CloseAction: {}, LanguageClient: Client },
    };
    return own[name] ?? load(name, ...rest);
  };
  extension = require("../extension.js");
  return extension.activate({ subscriptions: seen.context });
}

// One server serves all tests, since its start is what takes time.
before(() => activate());

after(async () => {
  await extension.deactivate();
  Module._load = load;
});

beforeEach(() => {
  for (const list of [seen.errors, seen.messages, seen.documents]) {
    list.length = 0;
  }
});

test("every command of package.json is registered, and no other", async () => {
  const declared = require("../package.json").contributes.commands.map((each) => each.command);
  assert.deepEqual(Object.keys(seen.commands).sort(), declared.sort());
  assert.deepEqual(seen.errors, []);
});

test("the server is of this version, and offers what the page on editors says", async () => {
  const { capabilities, serverInfo } = Client.started.offers;
  assert.equal(serverInfo.version, require("../package.json").version);
  for (const name of [
    "hoverProvider", "completionProvider", "definitionProvider", "referencesProvider",
    "renameProvider", "codeActionProvider", "signatureHelpProvider", "semanticTokensProvider",
    "documentFormattingProvider", "documentSymbolProvider", "foldingRangeProvider",
    "documentHighlightProvider",
  ]) {
    assert.ok(capabilities[name], name);
  }
  assert.deepEqual(capabilities.executeCommandProvider.commands, ["dmlc.source", "dmlc.check"]);
  assert.deepEqual(Client.started.selector, [{ language: "dml" }]);
});

for (const [command, language, begins] of [
  ["dmlc.showHlsl", "hlsl", "// DOUBLE: HLSL"],
  ["dmlc.showOpencl", "cpp", "// DOUBLE: OpenCL C"],
  ["dmlc.showWgsl", "plaintext", "// DOUBLE: WGSL"],
]) {
  test(`${command} shows the kernels beside the text`, async () => {
    await Client.started.open(TEXT);
    await seen.commands[command]();
    assert.deepEqual(seen.errors, []);
    const [[document, options]] = seen.documents;
    assert.equal(document.language, language);
    assert.ok(document.content.startsWith(begins), document.content.slice(0, 80));
    assert.equal(options.viewColumn, -2);
  });
}

test("what the server refuses is shown", async () => {
  await Client.started.open(TEXT.replace("2 * X", "2 * Q"));
  await seen.commands["dmlc.showHlsl"]();
  assert.equal(seen.errors.length, 1);
  assert.match(seen.errors[0], /^unknown name 'Q'/);
  const editor = seen.vscode.window.activeTextEditor;
  seen.vscode.window.activeTextEditor = undefined;
  await seen.commands["dmlc.showHlsl"]();
  assert.match(seen.errors[1], /\.dml file/);
  seen.vscode.window.activeTextEditor = editor;
});

test("a file is checked", async () => {
  await Client.started.open(TEXT);
  await seen.commands["dmlc.checkFile"]();
  assert.deepEqual(seen.messages, ["dmlc: no mistakes"]);
  await Client.started.open(TEXT.replace("2 * X", "2 * Q"));
  await seen.commands["dmlc.checkFile"]();
  assert.deepEqual(seen.messages[1], "dmlc: 1 error, 1 warning");
  assert.equal(Client.started.problems.get(URI)[0].code, "E0201");
});

test("where dmlc does not start, the message says why and how to get it", async () => {
  await seen.commands["dmlc.restart"]();
  assert.deepEqual(seen.errors, []);
  for (const [command, reason] of [
    ["/nowhere/dmlc", /'\/nowhere\/dmlc lsp' does not start \(.*ENOENT\)/],
    [process.execPath, /does not start \(.*Cannot find module.*lsp'|does not start \(node:/],
  ]) {
    seen.settings.path = command;
    seen.choice = "Copy Command";
    await seen.changed({ affectsConfiguration: (name) => name === "dmlc" });
    assert.match(seen.errors[0], reason);
    assert.match(seen.errors[0], /pip install 'dmlc\[lsp\]'.*dmlc\.path/);
    assert.deepEqual(seen.messages, [["copied", "pip install 'dmlc[lsp]'"]]);
    await seen.commands["dmlc.showHlsl"]();
    assert.match(seen.errors[1], /does not run/);
    seen.errors.length = seen.messages.length = 0;
  }
});

test("folders to import from are given to the server", async () => {
  Object.assign(seen.settings, { path: COMMAND, importFolders: ["/nowhere/shared"] });
  await seen.changed({ affectsConfiguration: (name) => name === "dmlc" });
  assert.deepEqual(seen.errors, []);
  assert.deepEqual(Client.started.child.spawnargs.slice(1), [
    "lsp", "--import-folder", "/nowhere/shared",
  ]);
});

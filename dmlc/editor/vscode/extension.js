// The extension: starts `dmlc lsp`, and shows what its commands answer.

"use strict";

const { spawn } = require("node:child_process");
const vscode = require("vscode");
const { CloseAction, LanguageClient } = require("vscode-languageclient/node");

/** The language of each target's text, as VS Code and its extensions call it. */
const TARGETS = { Hlsl: ["hlsl", "hlsl"], Opencl: ["opencl", "cpp"], Wgsl: ["wgsl", "wgsl"] };
const INSTALL = "pip install 'dmlc[lsp]'";

/** @type {LanguageClient | undefined} */
let client;

/** @param {vscode.ExtensionContext} context */
exports.activate = async (context) => {
  /** @type {(name: string, run: () => Promise<void>) => void} */
  const register = (name, run) =>
    void context.subscriptions.push(vscode.commands.registerCommand(`dmlc.${name}`, run));
  for (const [name, [target, language]] of Object.entries(TARGETS)) {
    register(`show${name}`, () => answer((editor) => showKernels(editor, target, language)));
  }
  register("checkFile", () => answer(checkFile));
  register("restart", restart);
  context.subscriptions.push(
    vscode.workspace.onDidChangeConfiguration((change) =>
      change.affectsConfiguration("dmlc") ? restart() : undefined,
    ),
  );
  await start();
};

exports.deactivate = stop;

/** Starts the server that the settings name. Says how to get it where it does not start. */
async function start() {
  const settings = vscode.workspace.getConfiguration("dmlc");
  const command = settings.get("path", "dmlc");
  /** @type {string[]} */
  const folders = settings.get("importFolders", []);
  const args = ["lsp", ...folders.flatMap((folder) => ["--import-folder", folder])];
  let said = "";
  let ready = false;
  /** @type {(error: Error) => void} */
  let leave = () => undefined;
  // The client waits for the first answer of a server that leaves before it.
  const left = new Promise((_, reject) => (leave = reject));
  /** @type {import("vscode-languageclient").ErrorHandler} */
  const errorHandler = {
    error: (...given) => usual.error(...given),
    // A server that never answered would not the next time either.
    closed: () =>
      ready ? usual.closed() : { action: CloseAction.DoNotRestart, handled: true },
  };
  const made = new LanguageClient(
    "dmlc",
    "dmlc",
    () => run(command, args, (text) => (said += text), leave),
    { documentSelector: [{ language: "dml" }], errorHandler },
  );
  const usual = made.createDefaultErrorHandler();
  client = made;
  try {
    await Promise.race([made.start(), left]);
    ready = true;
  } catch (error) {
    client = undefined;
    const reason = said.trim() || (error instanceof Error ? error.message : String(error));
    await offerCure(command, reason.split("\n")[0]);
  }
}

/**
 * A running command; rejected where there is none.
 * @param {string} command
 * @param {string[]} args
 * @param {(text: string) => void} hear what it writes to standard error
 * @param {(error: Error) => void} leave when it ends
 * @returns {Promise<import("node:child_process").ChildProcess>}
 */
function run(command, args, hear, leave) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args);
    child.stderr.on("data", (data) => hear(String(data)));
    child.on("error", reject);
    child.on("spawn", () => resolve(child));
    child.on("close", (status) => leave(new Error(`it ended with status ${status}`)));
  });
}

async function stop() {
  const old = client;
  client = undefined;
  if (old?.isRunning()) {
    await old.stop();
  }
}

async function restart() {
  await stop();
  await start();
}

/**
 * @param {string} command
 * @param {string} reason
 */
async function offerCure(command, reason) {
  const message =
    `'${command} lsp' does not start (${reason}). Install it by ${INSTALL}, or ` +
    "name the command in the setting dmlc.path.";
  const chosen = await vscode.window.showErrorMessage(message, "Open Settings", "Copy Command");
  if (chosen === "Open Settings") {
    await vscode.commands.executeCommand("workbench.action.openSettings", "dmlc.path");
  } else if (chosen === "Copy Command") {
    await vscode.env.clipboard.writeText(INSTALL);
  }
}

/**
 * Runs a command on the text at hand, and shows why it has no answer.
 * @param {(editor: vscode.TextEditor) => Promise<void>} run
 */
async function answer(run) {
  const editor = vscode.window.activeTextEditor;
  if (!client) {
    await vscode.window.showErrorMessage("dmlc's language server does not run.");
  } else if (!editor || editor.document.languageId !== "dml") {
    await vscode.window.showErrorMessage("This command is of a .dml file: open one.");
  } else {
    try {
      await run(editor);
    } catch (error) {
      await vscode.window.showErrorMessage(error instanceof Error ? error.message : String(error));
    }
  }
}

/**
 * Asks the server to run one of its own commands.
 * @param {string} command
 * @param {unknown[]} given
 * @returns {Promise<any>}
 */
async function execute(command, ...given) {
  return client?.sendRequest("workspace/executeCommand", { command, arguments: given });
}

/**
 * Shows the kernels of the operator at the cursor beside the text.
 * @param {vscode.TextEditor} editor
 * @param {string} target
 * @param {string} language
 */
async function showKernels(editor, target, language) {
  const uri = editor.document.uri.toString();
  const { line, character } = editor.selection.active;
  const { text } = await execute("dmlc.source", uri, { line, character }, target);
  const known = await vscode.languages.getLanguages();
  const shown = known.includes(language) ? language : "plaintext";
  const document = await vscode.workspace.openTextDocument({ content: text, language: shown });
  await vscode.window.showTextDocument(document, {
    viewColumn: vscode.ViewColumn.Beside,
    preserveFocus: true,
    preview: true,
  });
}

/**
 * Checks the text as `dmlc check --thorough` does.
 * @param {vscode.TextEditor} editor
 */
async function checkFile(editor) {
  const { errors, warnings } = await execute("dmlc.check", editor.document.uri.toString());
  /** @type {(count: number, one: string) => string} */
  const counted = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;
  const found = `${counted(errors, "error")}, ${counted(warnings, "warning")}`;
  await vscode.window.showInformationMessage(
    errors + warnings === 0 ? "dmlc: no mistakes" : `dmlc: ${found}`,
  );
}

// The two editors of the page: the operator, which is written, and the kernels, which are read.

import { autocompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import {
  HighlightStyle, StreamLanguage, bracketMatching, indentUnit, syntaxHighlighting,
} from "@codemirror/language";
import { c, cpp } from "@codemirror/legacy-modes/mode/clike";
import { rust } from "@codemirror/legacy-modes/mode/rust";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import {
  EditorView, drawSelection, highlightActiveLine, highlightSpecialChars, hoverTooltip, keymap,
  lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

// Colours come from the page's style sheet, so that they suit light and dark.
const colours = HighlightStyle.define([
  { tag: tags.comment, class: "tok-comment" },
  { tag: tags.string, class: "tok-string" },
  { tag: tags.number, class: "tok-number" },
  { tag: [tags.keyword, tags.definitionKeyword, tags.controlKeyword, tags.modifier], class: "tok-keyword" },
  { tag: [tags.typeName, tags.standard(tags.variableName), tags.atom, tags.bool], class: "tok-type" },
  { tag: [tags.meta, tags.processingInstruction], class: "tok-meta" },
]);

const MODES = { hlsl: cpp, opencl: c, wgsl: rust };

const SECTIONS =
  /^(?:operator|graph|enum|module|function|import|attributes|tensors|types|constraints|compute|example|differs|forward|gradient|introduced|expect|output|require|where|within|with|respect|must|have|the|same|broadcastable|scalar|and|else|of|to|be|a|from|in|instead)\b/;

// The operator language: `words` are the names that the compiler says it has.
function operatorLanguage(words) {
  const types = new Set([...words.types, "true", "false", "inf", "nan"]);
  const functions = new Set([...words.functions, ...words.facts]);
  return StreamLanguage.define({
    name: "dml",
    startState: () => ({ comment: false }),
    token(stream, state) {
      if (state.comment || stream.match("/*")) {
        state.comment = !stream.match(/^.*?\*\//);
        if (state.comment) stream.skipToEnd();
        return "comment";
      }
      if (stream.eatSpace()) return null;
      if (stream.match(/^\/\/.*/)) return "comment";
      if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
      if (stream.match(/^\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/)) return "number";
      const word = stream.match(/^[A-Za-z_]\w*/, false);
      if (!word) {
        stream.next();
        return null;
      }
      const keyword = stream.match(SECTIONS, false);
      stream.match(/^[A-Za-z_]\w*/);
      if (types.has(word[0])) return "typeName";
      if (functions.has(word[0])) return "variableName.standard";
      return keyword ? "keyword" : null;
    },
    languageData: { commentTokens: { line: "//", block: { open: "/*", close: "*/" } } },
  });
}

const shared = [lineNumbers(), highlightSpecialChars(), drawSelection(), bracketMatching(),
  syntaxHighlighting(colours)];

// The editor of the operator. `changed` is told of each change; `suggest(text, at)` and
// `tell(text, at)` ask the compiler.
export function makeEditor(parent, words, { changed, suggest, tell }) {
  const complete = async (context) => {
    if (!context.explicit && !context.matchBefore(/[\w.]$/)) return null;
    const found = await suggest(context.state.doc.toString(), context.pos);
    return found.options?.length ? found : null;
  };
  const explain = async (view, at) => {
    const found = await tell(view.state.doc.toString(), at);
    if (!found.place) return null;
    return {
      pos: found.place[0],
      end: found.place[1],
      create: () => ({ dom: describeWord(found) }),
    };
  };
  return new EditorView({
    parent,
    extensions: [
      shared, history(), highlightActiveLine(), indentUnit.of("    "), operatorLanguage(words),
      autocompletion({ override: [complete] }), hoverTooltip(explain), lintGutter(),
      keymap.of([...defaultKeymap, ...historyKeymap, ...completionKeymap, indentWithTab]),
      EditorView.contentAttributes.of({ "aria-label": "The operator" }),
      EditorView.updateListener.of((update) => update.docChanged && changed()),
    ],
  });
}

function describeWord({ title, facts, code }) {
  const box = document.createElement("div");
  box.className = "word";
  const add = (kind, text) => {
    const part = document.createElement(kind);
    part.textContent = text;
    box.append(part);
  };
  add("code", title);
  for (const fact of facts) add("p", fact);
  for (const piece of code) add("pre", piece);
  return box;
}

// Underlines what is wrong, with the message and its cures.
export function underline(view, found) {
  const length = view.state.doc.length;
  const marks = found
    .filter(({ place }) => place)
    .map(({ place, severity, message, notes, code }) => ({
      from: Math.min(place[0], length),
      to: Math.min(place[1], length),
      severity,
      source: code ?? undefined,
      message: [message, ...notes.map((note) => note.message)].join("\n"),
    }));
  view.dispatch(setDiagnostics(view.state, marks));
}

// An editor that shows kernels.
export function makeViewer(parent) {
  return new EditorView({ parent });
}

export function showKernel(view, target, text) {
  const extensions = [shared, StreamLanguage.define(MODES[target]), EditorState.readOnly.of(true),
    EditorView.contentAttributes.of({ "aria-label": "The kernel" })];
  view.setState(EditorState.create({ doc: text, extensions }));
}

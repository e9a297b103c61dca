// The editor: CodeMirror with Lua's colours, and a mark on the line of the last error.
import { history, historyKeymap, indentWithTab, isolateHistory, standardKeymap } from "@codemirror/commands";
import { indentUnit, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { lua } from "@codemirror/legacy-modes/mode/lua";
import { EditorState, Prec, StateEffect, StateField, Transaction } from "@codemirror/state";
import { Decoration, EditorView, keymap, lineNumbers } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";

const mark = StateEffect.define();
const marks = StateField.define({
  create: () => Decoration.none,
  update(value, transaction) {
    value = transaction.docChanged ? Decoration.none : value;
    for (const effect of transaction.effects) if (effect.is(mark)) value = effect.value;
    return value;
  },
  provide: (field) => EditorView.decorations.from(field),
});

/* An editor in `parent`: {text(), set(text), markLine(n or 0), focus()}. run() is called at Ctrl-Enter, changed(text)
 * after each edit of the reader. */
export function createEditor(parent, { run, changed }) {
  const view = new EditorView({
    parent,
    state: EditorState.create({
      extensions: [
        Prec.highest(keymap.of([{ key: "Ctrl-Enter", mac: "Mod-Enter", run: () => (run(), true) }])),
        lineNumbers(), history(), EditorView.lineWrapping, indentUnit.of("  "), EditorState.tabSize.of(2),
        StreamLanguage.define(lua), syntaxHighlighting(classHighlighter), marks,
        // Escape switches Tab back to moving the focus, for readers without a mouse.
        keymap.of([indentWithTab, ...standardKeymap, ...historyKeymap]),
        EditorView.contentAttributes.of({ "aria-label": "Script in Lua", spellcheck: "false", autocapitalize: "off" }),
        EditorView.updateListener.of((update) => { if (update.docChanged) changed(view.state.doc.toString()); }),
      ],
    }),
  });
  const text = () => view.state.doc.toString();
  return {
    text,
    // An edit of its own: Ctrl-Z brings back the text before it. The first text has none.
    set(replacement) {
      const { length } = view.state.doc;
      view.dispatch({
        changes: { from: 0, to: length, insert: replacement }, selection: { anchor: 0 },
        annotations: length > 0 ? isolateHistory.of("full") : Transaction.addToHistory.of(false),
      });
      view.scrollDOM.scrollTop = 0;
    },
    markLine(n) {
      if (n < 1 || n > view.state.doc.lines) {
        view.dispatch({ effects: mark.of(Decoration.none) });
        return;
      }
      const line = Decoration.line({ class: "cm-failed", attributes: { "aria-description": "the error is here" } });
      const from = view.state.doc.line(n).from;
      view.dispatch({ effects: mark.of(Decoration.set([line.range(from)])) });
      // The editor scrolls, and not the page, which may show the error.
      view.scrollDOM.scrollTop = view.lineBlockAt(from).top - view.scrollDOM.clientHeight / 2;
    },
    focus: () => view.focus(),
  };
}

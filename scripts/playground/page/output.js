// The output: text in monospaced lines, and pictures between them. What scripts print is collected and shown in steps;
// the last lines are kept, so that the page stays responsive whatever a script prints.
const INTERVAL = 30;         // milliseconds between two steps
const MOST_LINES = 4000;     // kept on the page
const MOST_CHARACTERS = 1e6; // likewise, of lines that may be long
const MOST_PICTURES = 40;
const BLOCK = 200;           // lines that are removed together

export class Output {
  constructor(element) {
    this.element = element;
    this.clear();
  }

  clear() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.waiting = [];  // {kind, text} or {picture}
    this.lines = this.characters = this.pictures = 0;
    this.last = null;   // a block of lines that the next text continues
    this.dropped = false;
    this.follows = false; // lines of the prompt: their end is always shown
    this.release(this.element);
    this.element.replaceChildren();
  }

  /* kind: "out", "error", "note" or "input" */
  add(kind, text) {
    if (text === "") return;
    const end = this.waiting[this.waiting.length - 1];
    if (end && end.kind === kind) end.text += text; else this.waiting.push({ kind, text });
    this.schedule();
  }

  /* A line of the page itself begins a new line. */
  addLine(kind, text) {
    this.waiting.push({ line: true });
    this.add(kind, text + "\n");
  }

  /* picture: {name, type = "image/svg+xml", "image/png" or "text/html", data = string or bytes, file}. A file that was
   * written again replaces its picture. */
  picture(picture) {
    this.waiting.push({ picture });
    this.schedule();
  }

  schedule() {
    if (!this.timer) this.timer = setTimeout(() => this.flush(), INTERVAL);
  }

  flush() {
    clearTimeout(this.timer);
    this.timer = 0;
    // The end stays in view for readers who are there; a run begins at its first line.
    const { scrollHeight, scrollTop, clientHeight } = this.element;
    const follows = this.follows || (scrollHeight > clientHeight && scrollHeight - scrollTop - clientHeight < 40);
    for (const item of this.waiting.splice(0)) {
      if (item.picture) this.showPicture(item.picture);
      else if (item.line) this.breakLine();
      else this.showText(item.kind, item.text);
    }
    this.trim();
    if (follows) this.element.scrollTop = this.element.scrollHeight;
  }

  breakLine() {
    if (this.last && !this.last.textContent.endsWith("\n")) this.showText("out", "\n");
  }

  showText(kind, text) {
    if (text.length > MOST_CHARACTERS) { text = text.slice(-MOST_CHARACTERS); this.dropped = true; }
    let lines = text.match(/[^\n]*\n|[^\n]+$/g);
    if (lines.length > MOST_LINES) { lines = lines.slice(-MOST_LINES); this.dropped = true; }
    for (let i = 0; i < lines.length; i += BLOCK) this.appendText(kind, lines.slice(i, i + BLOCK));
  }

  appendText(kind, lines) {
    const text = lines.join("");
    if (!this.last) {
      this.last = document.createElement("div");
      this.last.className = "lines";
      this.last.counted = { lines: 0, characters: 0 };
      this.element.append(this.last);
    }
    const span = document.createElement("span");
    if (kind !== "out") span.className = kind;
    span.textContent = text;
    this.last.append(span);
    this.last.counted.lines += lines.length;
    this.last.counted.characters += text.length;
    this.lines += lines.length;
    this.characters += text.length;
    if (text.endsWith("\n")) this.last = null;
  }

  showPicture({ name, type, data, file }) {
    const figure = document.createElement("figure");
    let shown;
    if (type === "text/html") {
      // Without the page's origin: what a script writes can't read this page, and the page's policy keeps it offline.
      shown = document.createElement("iframe");
      shown.setAttribute("sandbox", "allow-scripts");
      shown.title = name;
      shown.srcdoc = data;
    } else {
      shown = document.createElement("img");
      shown.alt = "Chart: " + name;
      shown.src = URL.createObjectURL(new Blob([data], { type }));
    }
    figure.append(shown);
    const caption = document.createElement("figcaption");
    caption.textContent = name;
    figure.append(caption);
    const old = file && [...this.element.querySelectorAll("figure[data-file]")].find((other) => other.dataset.file === name);
    if (file) figure.dataset.file = name;
    if (old) {
      this.release(old);
      old.replaceWith(figure);
      return;
    }
    this.breakLine();
    this.last = null;
    this.element.append(figure);
    this.pictures++;
  }

  release(element) {
    for (const image of element.querySelectorAll("img")) URL.revokeObjectURL(image.src);
  }

  // Removes the oldest blocks until little enough is left; the newest stays.
  trim() {
    const first = () => this.element.querySelector(".lines, figure");
    while (this.lines > MOST_LINES || this.characters > MOST_CHARACTERS || this.pictures > MOST_PICTURES) {
      const block = first();
      if (!block || block === this.element.lastElementChild) break;
      if (block.counted) {
        this.lines -= block.counted.lines;
        this.characters -= block.counted.characters;
      } else {
        this.pictures--;
        this.release(block);
      }
      block.remove();
      this.dropped = true;
    }
    if (this.dropped && !this.element.querySelector(".dropped")) {
      const note = document.createElement("div");
      note.className = "note dropped";
      note.textContent = "(earlier output is no longer shown)";
      this.element.prepend(note);
    }
  }
}

// The line below the output: what is entered runs in the state of the last run. A line that is not complete goes on in
// the next one; Up and Down bring back earlier entries; Escape discards.
const MOST = 200; // entries

export class Prompt {
  /* enter(text) runs the lines so far, and returns false if it can't now. */
  constructor(form, input, mark, enter) {
    Object.assign(this, { input, mark, entries: [], at: 0 });
    this.reset();
    form.onsubmit = (event) => {
      event.preventDefault();
      const text = this.before + input.value;
      if (text.trim() === "" || !enter(text)) return;
      this.text = text;
      input.value = "";
    };
    input.onkeydown = (event) => {
      if (event.key === "ArrowUp") this.move(-1);
      else if (event.key === "ArrowDown") this.move(1);
      else if (event.key === "Escape") { input.value = ""; this.reset(); }
      else return;
      event.preventDefault();
    };
  }

  get isContinued() { return this.before !== ""; }

  /* The call is done: its text is an entry, or goes on in the next line. */
  finish(incomplete) {
    if (this.text === "") return;
    if (incomplete) {
      this.before = this.text + "\n";
      this.mark.textContent = ">>";
    } else {
      this.entries.push(this.text.replace(/\n/g, " "));
      if (this.entries.length > MOST) this.entries.shift();
      this.reset();
    }
    this.text = "";
  }

  reset() {
    this.before = this.text = "";
    this.at = this.entries.length;
    this.mark.textContent = ">";
  }

  move(by) {
    this.at = Math.max(0, Math.min(this.entries.length, this.at + by));
    this.input.value = this.entries[this.at] || "";
  }
}

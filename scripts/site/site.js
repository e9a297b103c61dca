// The script of every page: the theme, the menu, copying code, and the search. Pages are complete without it.
"use strict";
(() => {
  const root = document.documentElement;
  const folder = root.dataset.root + "/";

  // ---- Dark and light: the system's choice until the reader makes one, which the
  // playground follows, too. Storage may be forbidden. ----
  const remembered = () => { try { return localStorage.getItem("heed.theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("heed.theme", theme); } catch { /* not remembered */ } };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  if (["dark", "light"].includes(remembered())) root.dataset.theme = remembered();

  function themeSwitch() {
    const button = document.querySelector(".theme");
    const show = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      remember(root.dataset.theme);
      show();
    });
    system.addEventListener("change", show);
    show();
    button.hidden = false;
  }

  // ---- The menu of narrow screens, a link to the navigation without this script ----
  function menu() {
    const link = document.querySelector(".menu"), navigation = document.getElementById("navigation");
    link.setAttribute("role", "button");
    link.setAttribute("aria-expanded", "false");
    link.setAttribute("aria-controls", "navigation");
    const toggle = (shown) => {
      navigation.classList.toggle("shown", shown);
      link.setAttribute("aria-expanded", String(shown));
    };
    link.addEventListener("click", (event) => {
      event.preventDefault();
      toggle(!navigation.classList.contains("shown"));
      window.scrollTo(0, 0);
    });
    link.addEventListener("keydown", (event) => {
      if (event.key === " ") { event.preventDefault(); link.click(); }
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && navigation.classList.contains("shown")) { toggle(false); link.focus(); }
    });
    const current = navigation.querySelector("[aria-current]");
    if (current && navigation.scrollHeight > navigation.clientHeight) {
      navigation.scrollTop = current.offsetTop - navigation.offsetTop - navigation.clientHeight / 3;
    }
  }

  function outline() {
    const details = document.querySelector(".outline details");
    if (details) details.open = matchMedia("(min-width: 80rem)").matches;
  }

  // ---- Code ----
  function copyButtons() {
    for (const pre of document.querySelectorAll(".code > pre")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        button.textContent = await copy(typed(pre)) ? "Copied" : "Select and copy by hand";
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      });
      pre.parentElement.querySelector(".bar").append(button);
    }
  }

  // What a reader would type: of a session of the prompt the lines after "> ".
  function typed(pre) {
    if (!pre.querySelector(".gp")) return pre.textContent;
    return pre.textContent.split("\n").filter((line) => /^>>? /.test(line))
      .map((line) => line.replace(/^>>? /, "")).join("\n") + "\n";
  }

  // Pages from files may lack navigator.clipboard.
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      area.setAttribute("aria-label", "Code to copy");
      document.querySelector("main").append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  // What scrolls sideways can be reached by keyboard.
  function scrollable() {
    for (const box of document.querySelectorAll("pre, .wide, .picture")) {
      if (box.scrollWidth > box.clientWidth) {
        box.tabIndex = 0;
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", box.matches("pre") ? "Code" : box.matches(".wide") ? "Table" : "Picture");
      } else {
        for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
      }
    }
  }

  // ---- Search ----
  let loaded;
  const load = (name) => new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = folder + name;
    script.onload = resolve;
    script.onerror = () => reject(new Error(name));
    document.head.append(script);
  });

  // Words, and the parts of names: heed.set_num_threads -> heed.set_num_threads, set_num_threads, set, num, threads.
  function words(text) {
    const found = [];
    for (const [word] of text.matchAll(/[\p{L}\p{N}_]+(?:[.:][\p{L}\p{N}_]+)*/gu)) {
      const names = word.split(/[.:]/);
      found.push(...names);
      if (names.length > 1) found.push(word);
      for (const name of names) {
        const parts = name.split(/_+|(?<=[a-z])(?=[A-Z])/).filter(Boolean);
        if (parts.length > 1) found.push(...parts);
      }
    }
    return found;
  }
  const EMPTY = new Set(["a", "an", "are", "can", "do", "does", "how", "i", "in", "is", "my", "of", "the", "what",
    "with"]);
  const stem = (word) => {
    word = word.toLowerCase();
    if (EMPTY.has(word)) return null;
    return word.length > 3 && /[^su]s$/.test(word) && !word.includes("_") ? word.slice(0, -1) : word;
  };
  // What readers call things that the pages call otherwise.
  const SYNONYMS = [[/\b(seg(mentation)?[ -]?faults?|sigsegv)\b/gi, "crash"],
    [/\bkv[-_ ]?cach(e|es|ing)\b/gi, "caches keys values"], [/\bsliding[ -]windows?\b/gi, "window"],
    [/\bautograd\b/gi, "gradients"], [/\btorch\./g, "heed."],
    [/\bout of memory\b/gi, "memory limits"], [/\bquanti[sz](ation|ed|ing)\b/gi, "fewer bits"]];

  function makeIndex() {
    const index = new window.MiniSearch({
      idField: "url", fields: ["title", "page", "text", "code"],
      storeFields: ["title", "page", "group", "text", "weight"],
      tokenize: words, processTerm: stem,
      searchOptions: {
        boost: { title: 6, page: 3, text: 1, code: 0.5 }, combineWith: "AND",
        prefix: (term, i, terms) => i === terms.length - 1 && term.length > 1,
        fuzzy: (term) => term.length > 5 && !term.includes("_") ? 0.15 : false,
        weights: { fuzzy: 0.2, prefix: 0.4 },
        boostDocument: (id, term, stored) => stored.weight * (id.includes("#") ? 1 : 1.3),
      },
    });
    index.addAll(window.heedSearchIndex);
    return index;
  }

  async function search(query) {
    loaded = loaded || Promise.all([load("minisearch.js"), load("search-index.js")]).then(makeIndex);
    const index = await loaded;
    for (const [pattern, word] of SYNONYMS) query = query.replace(pattern, word);
    const found = index.search(query);
    if (!found.length) return index.search(query, { combineWith: "OR" });
    // A heading that is the query itself comes first, that of a page before others, then names that end with it:
    // softmax, x:softmax.
    const plain = query.trim().toLowerCase();
    const exact = (hit) => {
      const title = hit.title.toLowerCase();
      return title === plain ? (hit.id.includes("#") ? 2 : 3) : title.split(/[.:]/).pop() === plain ? 1 : 0;
    };
    return found.sort((a, b) => exact(b) - exact(a) || b.score - a.score);
  }

  // A piece of the text around the first word that was found, with these words marked.
  function excerpt(text, terms) {
    const wanted = terms.filter((term) => term.length > 1)
      .map((term) => term.replace(/[^\p{L}\p{N}_.:]/gu, "").replace(/[.]/g, "\\."));
    const pattern = wanted.length ? new RegExp("((?:" + wanted.join("|") + ")s?)", "giu") : /$^/g;
    const at = Math.max(0, text.search(pattern));
    const from = at > 60 ? text.indexOf(" ", at - 60) + 1 : 0;
    const piece = document.createElement("span");
    const shown = (from ? "… " : "") + text.slice(from, from + 160) + (text.length > from + 160 ? " …" : "");
    shown.split(pattern).forEach((part, i) => {
      const mark = document.createElement(i % 2 ? "mark" : "i");
      mark.textContent = part;
      piece.append(i % 2 ? mark : part);
    });
    return piece;
  }

  function searchBox() {
    const form = document.querySelector(".search"), input = document.getElementById("search");
    const results = document.getElementById("results"), list = results.querySelector("ol");
    const status = results.querySelector(".found");
    if (root.hasAttribute("data-nosearch")) return;
    form.hidden = false;
    const close = () => { results.hidden = true; };

    async function show() {
      const query = input.value.trim();
      if (!query) return close();
      let found;
      try { found = await search(query); } catch { found = null; }
      if (input.value.trim() !== query) return undefined;
      list.replaceChildren(...(found || []).slice(0, 12).map((hit) => {
        const [item, link, title] = ["li", "a", "b"].map((name) => document.createElement(name));
        link.href = folder + hit.id;
        title.textContent = hit.title;
        link.append(title, hit.page === hit.title ? "" : " · " + hit.page, excerpt(hit.text, hit.terms));
        item.append(link);
        return item;
      }));
      status.textContent = !found ? "The search could not be loaded." : found.length === 0 ? "Nothing found."
        : found.length === 1 ? "1 result"
        : found.length > 12 ? `The first 12 of ${found.length} results` : `${found.length} results`;
      results.hidden = false;
      results.dataset.query = query; // which query the list answers
      return undefined;
    }

    input.addEventListener("input", show);
    input.addEventListener("focus", () => { if (input.value.trim()) show(); });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      await show();
      const first = list.querySelector("a");
      if (first && !results.hidden) { close(); location.href = first.href; }
    });
    form.addEventListener("keydown", (event) => {
      const links = [...list.querySelectorAll("a")], at = links.indexOf(document.activeElement);
      if (event.key === "Escape") {
        if (!results.hidden) event.preventDefault(); // which would also clear the input
        close();
        input.focus();
      } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && links.length && !results.hidden) {
        event.preventDefault();
        const to = at + (event.key === "ArrowDown" ? 1 : -1);
        (to < 0 ? input : links[Math.min(to, links.length - 1)]).focus();
      }
    });
    list.addEventListener("click", close);
    document.addEventListener("click", (event) => { if (!form.contains(event.target)) close(); });
    form.addEventListener("focusout", (event) => {
      if (event.relatedTarget && !form.contains(event.relatedTarget)) close();
    });
    document.addEventListener("keydown", (event) => {
      const writing = event.target.closest && event.target.closest("input, textarea, [contenteditable]");
      if (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        input.focus();
        input.select();
      }
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeSwitch();
    menu();
    outline();
    copyButtons();
    scrollable();
    addEventListener("resize", scrollable);
    searchBox();
  });
})();

// What stays between visits, where the browser allows it, and the switch between dark and light.

export function keep(name, value) {
  try { localStorage.setItem("heed." + name, value); } catch { /* private windows */ }
}

/* The value, or null. */
export function kept(name) {
  try { return localStorage.getItem("heed." + name); } catch { return null; }
}

/* The button switches to the other theme; without a choice, the system's is followed. */
export function followTheme(button) {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  const chosen = kept("theme");
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  button.onclick = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    keep("theme", root.dataset.theme);
    label();
  };
  system.addEventListener("change", label);
  label();
}

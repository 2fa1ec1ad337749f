// Dark or light: as the system has it until the viewer says otherwise, which is remembered.

const THEME_KEY = "otel-straggler-theme";

/** Sets `data-theme` of the document and draws the button that changes it. */
export function createTheme(button, changed) {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let told = rememberedTheme();
  const apply = () => {
    const theme = told || (system.matches ? "dark" : "light");
    const other = theme === "dark" ? "light" : "dark";
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "☀" : "☾";
    button.setAttribute("aria-label", `Change to ${other} colours`);
    button.title = `Change to ${other} colours`;
    changed(theme);
  };
  button.addEventListener("click", () => {
    told = root.dataset.theme === "dark" ? "light" : "dark";
    rememberTheme(told);
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

function rememberedTheme() {
  try {
    const theme = window.localStorage.getItem(THEME_KEY);
    return theme === "dark" || theme === "light" ? theme : null;
  } catch {
    return null; // storage may be forbidden; then the system decides at every visit
  }
}

function rememberTheme(theme) {
  try {
    window.localStorage.setItem(THEME_KEY, theme);
  } catch {
    // as above
  }
}

// The theme button of the dashboard and the reports. Blocked storage forgets the choice.

function startTheme() {
  const KEY = "headstart-theme";
  const names = ["system", "light", "dark"];
  const button = document.getElementById("theme");
  let theme = "system";
  try { theme = localStorage.getItem(KEY) ?? theme; } catch { /* blocked */ }
  if (!names.includes(theme)) theme = "system";
  const apply = () => {
    if (theme === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", theme);
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = names[(names.indexOf(theme) + 1) % names.length];
    apply();
    try {
      if (theme === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, theme);
    } catch { /* blocked */ }
  });
  apply();
}


// How the page looks: colours, folded GPUs, and its height above a phone's keyboard.

import { byId, icon } from "./dom.js";

const THEME = "nightshift.theme";
const FOLDED = "nightshift.folded";
const THEMES = ["", "light", "dark"];
const SIGNS = { "": ["auto", "Colours: as the system"], light: ["sun", "Colours: light"], dark: ["moon", "Colours: dark"] };

export function setUpLook() {
  themeButton(byId("theme"));
  foldButton(byId("fold"));
  keepAboveKeyboard();
}

function themeButton(button) {
  const root = document.documentElement;
  const show = () => {
    const [sign, label] = SIGNS[root.dataset.theme ?? ""];
    button.replaceChildren(icon(sign));
    button.setAttribute("aria-label", label);
    button.title = label;
  };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "") + 1) % THEMES.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    localStorage.setItem(THEME, next);
    show();
  });
  show();
}

function foldButton(button) {
  const strip = byId("strip");
  const fold = (folded) => {
    strip.classList.toggle("folded", folded);
    button.setAttribute("aria-expanded", String(!folded));
  };
  button.append(icon("down"));
  button.addEventListener("click", () => {
    const folded = !strip.classList.contains("folded");
    localStorage.setItem(FOLDED, folded ? "yes" : "");
    fold(folded);
  });
  fold(localStorage.getItem(FOLDED) === "yes");
}

/** Make the page smaller where the keyboard covers it (iOS). */
function keepAboveKeyboard() {
  const view = window.visualViewport;
  view?.addEventListener("resize", () => {
    const covered = window.innerHeight - view.height > 80 && view.scale === 1;
    byId("app").style.setProperty("height", covered ? `${view.height}px` : "");
    if (covered) window.scrollTo(0, 0);
  });
}

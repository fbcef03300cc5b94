// Builds elements, icons, toasts and dialogs. Text is only ever put in as text.

const TOAST_MS = 3500;

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const ICONS = {
  attach: "M20.500 11.300 12.200 19.600a5.200 5.200 0 0 1-7.400-7.400l8.700-8.700a3.500 3.500 0 0 1 4.900 4.900l-8.600 8.600a1.700 1.700 0 0 1-2.500-2.400l7.800-7.800",
  send: "M4.500 12h14M12.500 5.500 19 12l-6.500 6.500",
  close: "M6 6l12 12M18 6 6 18",
  reply: "M10 7 5 12l5 5M5.500 12H14a5 5 0 0 1 5 5v1",
  down: "M6 9.500l6 6 6-6",
  bell: "M6.500 16.500V11a5.500 5.500 0 0 1 11 0v5.500l1.500 1.500H5zM10 20.500h4",
  muted: "M6.500 16.500V11c0-.9.2-1.700.6-2.500M9.600 6.100A5.500 5.500 0 0 1 17.500 11v3.500M18 18H5l1.500-1.500M10 20.500h4M4.500 4.500l15 15",
  sun: "M12 7.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9zM12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M18.700 5.300l-1.400 1.400M6.700 17.300l-1.400 1.400",
  moon: "M19.500 14.500A8 8 0 0 1 9.500 4.500a8 8 0 1 0 10 10z",
  auto: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 4v16M15 5v14M18 7.500v9",
  file: "M13.500 3.500H7a1.500 1.500 0 0 0-1.500 1.500v14A1.500 1.500 0 0 0 7 20.500h10a1.500 1.500 0 0 0 1.500-1.500V8.500zM13.500 3.500v5h5",
  download: "M12 4.500v10M7.500 10.500 12 15l4.500-4.500M5.500 19.500h13",
  copy: "M9 9h9.500v10.500H9zM6 15H5V4.500h9.500V6",
  check: "M5 12.500l4.500 4.500L19 7.500",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4.500l3 2",
};
const SVG = "http://www.w3.org/2000/svg";

export function icon(name, label) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  if (label) {
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
  } else svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

export function toast(text) {
  const box = el("p", { class: "toast" }, text);
  byId("toasts").replaceChildren(box);
  setTimeout(() => box.remove(), TOAST_MS + text.length * 30);
}

const waiting = [];

/** Alerts are shown one after the other. */
export function alertBox(text) {
  waiting.push(text);
  const dialog = byId("alert");
  if (!dialog.open) showNext(dialog);
}

function showNext(dialog) {
  const text = waiting.shift();
  if (text === undefined) return;
  byId("alert-text").textContent = text;
  dialog.addEventListener("close", () => showNext(dialog), { once: true });
  dialog.showModal();
}

/** Show a long text over the whole page, from its end. */
export function openReader(name, text, whole) {
  const dialog = byId("reader");
  const [close, body] = [dialog.querySelector("button"), dialog.querySelector("pre")];
  byId("reader-name").textContent = name;
  byId("reader-note").hidden = whole;
  byId("reader-note").textContent = "Only the end is shown here. Download the file for all of it.";
  close.replaceChildren(icon("close"));
  close.onclick = () => dialog.close();
  dialog.onclose = () => body.replaceChildren();
  body.textContent = text;
  dialog.showModal();
  body.scrollTop = body.scrollHeight;
}

export function enlarge(source) {
  const dialog = byId("lightbox");
  dialog.querySelector("img").src = source;
  dialog.onclick = () => dialog.close();
  dialog.showModal();
}

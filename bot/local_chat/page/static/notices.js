// What is said over the chat: toasts, alerts, enlarged pictures.

import { byId, el } from "./dom.js";

const TOAST_MS = 3500;

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

export function enlarge(source) {
  const dialog = byId("lightbox");
  dialog.querySelector("img").src = source;
  dialog.onclick = () => dialog.close();
  dialog.showModal();
}

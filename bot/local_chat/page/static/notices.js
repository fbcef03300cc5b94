// What appears over and below the chat: toasts, alerts, enlarged pictures, and that the bot is typing.

import { byId, el } from "./dom.js";

const TOAST_MS = 3500;
const TYPING_MS = 5500;
const TYPING_WORDS = { upload_document: "sending a file", upload_photo: "sending a picture" };

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

/** What the bot is doing right now. It repeats this every few seconds until it is done. */
export class Typing {
  #element = byId("typing");
  #timer = 0;

  show(action) {
    this.#element.hidden = false;
    this.#element.querySelector("span").textContent = TYPING_WORDS[action] ?? "typing";
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.stop(), TYPING_MS);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#element.hidden = true;
  }
}

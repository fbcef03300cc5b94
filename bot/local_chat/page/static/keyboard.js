// Buttons under a message. A pressed button shows that it waits until the bot has answered.

import { alertBox, el, toast } from "./dom.js";
import { webAddress } from "./entities.js";

const LONGEST_WAIT_MS = 30_000;

async function copy(text) {
  await navigator.clipboard.writeText(text);
  toast("Copied.");
}

export class Keyboards {
  #connection;
  #pressed = new Map(); // our id of a press -> its place
  #taps = new Map(); // the server's id of a press -> its place
  #busy = new Map(); // place -> timer

  constructor(connection) {
    this.#connection = connection;
    connection.addEventListener("done", ({ detail }) => this.#noted(detail));
    connection.addEventListener("refused", ({ detail }) => this.#refused(detail));
    connection.addEventListener("hello", ({ detail }) => detail.messages && this.#forgetAll());
  }

  /** The rows of an inline keyboard, or nothing. */
  build(message) {
    const rows = message.reply_markup?.inline_keyboard;
    if (!rows) return null;
    return el(
      "div",
      { class: "keyboard", role: "group", "aria-label": "Actions" },
      ...rows.map((row) => el("div", { class: "row" }, ...row.map((button) => this.#button(message, button)))),
    );
  }

  /** The bot has answered a press. */
  answered({ id, text, show_alert: asAlert }) {
    this.#rest(this.#taps.get(id));
    this.#taps.delete(id);
    if (text) (asAlert ? alertBox : toast)(text);
  }

  #button(message, { text, style, url, callback_data: data, copy_text: copied }) {
    const look = `key ${style ?? ""}`.trim();
    const href = url && webAddress(url);
    if (href) return el("a", { class: look, href, target: "_blank", rel: "noopener noreferrer" }, text, " ↗");
    if (copied) return el("button", { type: "button", class: look, onclick: () => copy(copied.text) }, text);
    if (data !== undefined) {
      const place = JSON.stringify([message.message_id, data]);
      const press = () => this.#press(place, message.message_id, data);
      const busy = this.#busy.has(place) ? "true" : null;
      return el("button", { type: "button", class: look, "data-place": place, "aria-busy": busy, onclick: press }, text);
    }
    return el("button", { type: "button", class: look, disabled: true }, text);
  }

  #press(place, messageId, data) {
    if (this.#busy.has(place)) return;
    const id = crypto.randomUUID();
    if (!this.#connection.send({ do: "tap", id, message_id: messageId, data })) {
      toast("No connection. Press again in a moment.");
      return;
    }
    this.#pressed.set(id, place);
    this.#busy.set(place, setTimeout(() => this.#rest(place), LONGEST_WAIT_MS));
    this.#show(place, true);
  }

  #noted({ id, tap }) {
    if (tap) this.#taps.set(tap, this.#pressed.get(id));
    this.#pressed.delete(id);
  }

  #refused({ id, error }) {
    if (!this.#pressed.has(id)) return;
    this.#rest(this.#pressed.get(id));
    this.#pressed.delete(id);
    toast(error);
  }

  #rest(place) {
    if (place === undefined) return;
    clearTimeout(this.#busy.get(place));
    this.#busy.delete(place);
    this.#show(place, false);
  }

  #forgetAll() {
    for (const place of [...this.#busy.keys()]) this.#rest(place);
    this.#taps.clear();
    this.#pressed.clear();
  }

  #show(place, busy) {
    const button = document.querySelector(`[data-place="${CSS.escape(place)}"]`);
    if (busy) button?.setAttribute("aria-busy", "true");
    else button?.removeAttribute("aria-busy");
  }
}

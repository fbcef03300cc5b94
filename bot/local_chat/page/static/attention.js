// Gets the person's attention: a count in the tab's title and, if allowed, notifications.

import { byId, icon } from "./dom.js";
import { snippet } from "./bubbles.js";

export class Attention {
  #unread = 0;
  #title = document.title;
  #button = byId("notify");

  constructor() {
    document.addEventListener("visibilitychange", () => document.hidden || this.#setUnread(0));
    this.#button.append(icon("bell"));
    this.#button.hidden = !("Notification" in window) || Notification.permission !== "default";
    this.#button.addEventListener("click", async () => {
      this.#button.hidden = (await Notification.requestPermission()) !== "default";
    });
  }

  set title(title) {
    this.#title = title;
    this.#show();
  }

  /** The bot has written. */
  received(message) {
    if (!document.hidden) return;
    this.#setUnread(this.#unread + 1);
    if (!message.silent) this.#notify(message);
  }

  #setUnread(count) {
    this.#unread = count;
    this.#show();
  }

  #show() {
    document.title = this.#unread ? `(${this.#unread}) ${this.#title}` : this.#title;
  }

  #notify(message) {
    if (!("Notification" in window) || Notification.permission !== "granted") return;
    try {
      const notification = new Notification(this.#title, { body: snippet(message), icon: new URL("icon.svg", import.meta.url).href });
      notification.onclick = () => window.focus();
    } catch {
      // phones allow notifications to installed apps only
    }
  }
}

// Messages that have not arrived yet. Each has a name of its own, so that sending it again is safe.

import { byId, el, icon } from "./dom.js";
import { sizeText } from "./files.js";

export class Outbox {
  #connection;
  #files;
  #timeline;
  #shelf;
  #items = new Map();

  constructor(connection, files, timeline, shelf) {
    this.#connection = connection;
    this.#files = files;
    this.#timeline = timeline;
    this.#shelf = shelf;
    connection.addEventListener("done", ({ detail }) => this.arrived(detail.id));
    connection.addEventListener("refused", ({ detail }) => this.#refused(detail.id, detail.error));
    this.#show();
  }

  /** Put back what was written before the page was reloaded. It comes first. */
  restore(items = []) {
    this.#items = new Map([...items.map((item) => [item.id, item]), ...this.#items]);
    this.#show();
  }

  send(text, { replyTo = null, file = null } = {}) {
    const item = { id: crypto.randomUUID(), text, replyTo, file, sentTo: null, after: this.#timeline.newest };
    this.#items.set(item.id, item);
    this.#show();
    this.#timeline.toBottom();
    this.#deliver(item);
  }

  /** The server is there (again): send what it does not have. */
  flush() {
    for (const item of [...this.#items.values()]) {
      if (item.error) continue;
      if (this.#reachedAnEarlierServer(item)) this.arrived(item.id);
      else this.#deliver(item);
    }
  }

  /** The message with this name is in the chat now. */
  arrived(id) {
    if (this.#items.delete(id)) this.#show();
  }

  /** Whether an earlier server took the message but went away before it confirmed it. Then it is in the chat. */
  #reachedAnEarlierServer(item) {
    if (!item.sentTo || item.sentTo === this.#connection.instance || item.file) return false;
    return this.#timeline.all.some(
      (message) => message.message_id > item.after && !message.from?.is_bot && message.text === item.text.trim(),
    );
  }

  #deliver(item) {
    if (!this.#connection.online) return;
    item.sentTo = this.#connection.instance;
    if (item.file) this.#deliverFile(item);
    else this.#connection.send({ do: "send", id: item.id, text: item.text, reply_to: item.replyTo });
    this.#store();
  }

  async #deliverFile(item) {
    try {
      const refusal = await this.#files.send(item);
      if (refusal) this.#refused(item.id, refusal);
      else this.arrived(item.id);
    } catch {
      // no answer: it is sent again with the next connection
    }
  }

  #refused(id, error) {
    const item = this.#items.get(id);
    if (!item) return;
    item.error = error;
    this.#show();
  }

  #show() {
    byId("pending").replaceChildren(...[...this.#items.values()].map((item) => this.#bubble(item)));
    this.#store();
  }

  #bubble(item) {
    const mark = item.error
      ? el("button", { type: "button", class: "failed", onclick: () => this.arrived(item.id) }, `${item.error} · Remove`)
      : el("span", { class: "marks" }, icon("clock", "Waiting to be sent"));
    const file = item.file ? el("div", { class: "file-line" }, icon("file"), `${item.file.name} · ${sizeText(item.file.size)}`) : null;
    const bubble = el("div", { class: "bubble" }, file, el("div", { class: "text" }, item.text, mark));
    return el("article", { class: "message mine waiting" }, el("div", { class: "stack" }, bubble));
  }

  #store() {
    this.#shelf.put("outbox", [...this.#items.values()].filter((item) => !item.file));
  }
}

// What the bot is doing right now. It is told again every few seconds, or it is over.

import { byId } from "./dom.js";

const LASTS_MS = 5500;
const WORDS = { upload_document: "sending a file", upload_photo: "sending a picture" };

export class Typing {
  #element = byId("typing");
  #timer = 0;

  show(action) {
    this.#element.hidden = false;
    this.#element.querySelector("span").textContent = WORDS[action] ?? "typing";
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.stop(), LASTS_MS);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#element.hidden = true;
  }
}

// What is written but not sent survives a reload. It is sealed with a key that the server gives to pages it has let in:
// another program's page at this address can neither read it nor slip in something of its own.

import { bytes, hex } from "./identity.js";

const NAME = "nightshift.shelf";
const NONCE_BYTES = 12;

export class Shelf {
  #seal = null;
  #key = null;
  #things = {};
  #writing = Promise.resolve();

  /** Begin with this seal. Resolves to what was put here before a reload. */
  async open(seal) {
    if (seal === this.#seal) return {};
    const first = this.#seal === null;
    this.#seal = seal;
    this.#key = await crypto.subtle.importKey("raw", bytes(seal), "AES-GCM", false, ["encrypt", "decrypt"]);
    return first ? this.#read() : {};
  }

  put(name, thing) {
    this.#things[name] = thing;
    this.#writing = this.#writing.then(() => this.#key && this.#write());
  }

  async #write() {
    const iv = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
    const text = new TextEncoder().encode(JSON.stringify(this.#things));
    const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv }, this.#key, text);
    sessionStorage.setItem(NAME, hex(iv) + hex(sealed));
  }

  async #read() {
    try {
      const sealed = bytes(sessionStorage.getItem(NAME));
      const iv = sealed.subarray(0, NONCE_BYTES);
      const text = await crypto.subtle.decrypt({ name: "AES-GCM", iv }, this.#key, sealed.subarray(NONCE_BYTES));
      return JSON.parse(new TextDecoder().decode(text));
    } catch {
      return {}; // nothing there, or not from this session
    }
  }
}

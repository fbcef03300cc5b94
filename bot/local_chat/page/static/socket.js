// One WebSocket to the server. It comes back by itself, says what it saw last, and hands over every frame once.
// It sends nothing to a server, and takes nothing from it, before that server has proven that it knows the link's secret.

import { freshNonce } from "./identity.js";

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 5000;
const SILENCE_MS = 8000; // the server speaks about once a second

export class Connection extends EventTarget {
  #identity;
  #socket = null;
  #instance = null;
  #seen = 0;
  #wait = FIRST_WAIT_MS;
  #timer = 0;
  #watchdog = 0;
  online = false;
  fileKey = null;

  constructor(identity) {
    super();
    this.#identity = identity;
    const now = () => this.#tryNow();
    window.addEventListener("online", now);
    document.addEventListener("visibilitychange", () => document.hidden || now());
  }

  open() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(`ws://${location.host}/chat`);
    const nonce = freshNonce();
    this.#socket = socket;
    this.online = false;
    socket.onopen = () => socket.send(JSON.stringify({ nonce }));
    socket.onmessage = (event) => this.#meet(socket, nonce, event.data);
    socket.onclose = () => this.#lost();
    this.#expectSomething();
  }

  /** Go on with another link. */
  use(identity) {
    this.#identity = identity;
    if (this.#socket) this.#drop();
    this.open();
  }

  /** Send a frame. Returns false if there is no connection. */
  send(frame) {
    if (!this.online) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  get instance() {
    return this.#instance;
  }

  async #meet(socket, nonce, text) {
    socket.onmessage = null; // one frame, then either it is our server or it is none
    const answer = await this.#answer(nonce, text);
    if (socket !== this.#socket) return;
    if (!answer) {
      this.dispatchEvent(new Event("stranger"));
      this.#drop();
      this.#lost();
      return;
    }
    this.fileKey = answer.fileKey;
    socket.onmessage = (event) => this.#take(JSON.parse(event.data));
    socket.send(JSON.stringify({ proof: answer.proof, instance: this.#instance, seen: this.#seen }));
  }

  async #answer(nonce, text) {
    try {
      return await this.#identity.meet(nonce, JSON.parse(text));
    } catch {
      return null;
    }
  }

  #take(frame) {
    this.#expectSomething();
    if (frame.type === "hello") {
      this.#wait = FIRST_WAIT_MS;
      this.#instance = frame.instance;
      if (frame.messages) this.#seen = frame.number;
      this.online = true;
    }
    if (frame.type === "event") {
      if (frame.number <= this.#seen) return;
      this.#seen = frame.number;
    }
    this.dispatchEvent(new CustomEvent(frame.type, { detail: frame }));
  }

  #lost() {
    clearTimeout(this.#watchdog);
    this.#socket = null;
    this.online = false;
    this.dispatchEvent(new Event("offline"));
    this.#timer = setTimeout(() => this.open(), this.#wait * (0.75 + Math.random() / 2));
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT_MS);
  }

  #tryNow() {
    if (this.#socket !== null || !this.#timer) return;
    this.#wait = FIRST_WAIT_MS;
    this.open();
  }

  #expectSomething() {
    clearTimeout(this.#watchdog);
    this.#watchdog = setTimeout(() => {
      this.#drop();
      this.#lost();
    }, SILENCE_MS);
  }

  /** Close without waiting: a close handshake with a server that is gone would take long. */
  #drop() {
    const socket = this.#socket;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }
}

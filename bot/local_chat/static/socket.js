// One WebSocket to the server. It comes back by itself, says what it saw last, and hands over every frame once.

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 5000;
const SILENCE_MS = 8000; // the server speaks about once a second
const WRONG_SECRET = 4401;

export class Connection extends EventTarget {
  #secret;
  #socket = null;
  #instance = null;
  #seen = 0;
  #wait = FIRST_WAIT_MS;
  #timer = 0;
  #watchdog = 0;
  online = false;

  constructor(secret) {
    super();
    this.#secret = secret;
    const now = () => this.#tryNow();
    window.addEventListener("online", now);
    document.addEventListener("visibilitychange", () => document.hidden || now());
  }

  open() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(`ws://${location.host}/chat`);
    this.#socket = socket;
    socket.onopen = () =>
      socket.send(JSON.stringify({ secret: this.#secret, instance: this.#instance, seen: this.#seen }));
    socket.onmessage = (event) => this.#take(JSON.parse(event.data));
    socket.onclose = (event) => this.#lost(event.code);
    this.#expectSomething();
  }

  /** Send a frame; false if there is nobody to take it. */
  send(frame) {
    if (!this.online) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  get instance() {
    return this.#instance;
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

  #lost(code) {
    clearTimeout(this.#watchdog);
    this.#socket = null;
    this.online = false;
    if (code === WRONG_SECRET) {
      this.dispatchEvent(new Event("locked"));
      return;
    }
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
    const socket = this.#socket;
    this.#watchdog = setTimeout(() => {
      // a close handshake with a server that is gone would take long
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
      this.#lost(0);
    }, SILENCE_MS);
  }
}

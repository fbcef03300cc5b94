// The composer: a field that grows, files, replies, commands, and messages sent before.

import { byId, el, icon, toast } from "./dom.js";
import { snippet } from "./bubbles.js";

const touch = matchMedia("(pointer: coarse)");

export class Composer {
  #form = byId("composer");
  #field = byId("text");
  #replying = byId("replying");
  #outbox;
  #bubbles;
  #menu;
  #shelf;
  #replyTo = null;
  #sent = [];
  #recalled = -1;
  limits = { text: 4096, file_bytes: 20 * 1024 * 1024 };

  constructor(outbox, bubbles, shelf) {
    this.#outbox = outbox;
    this.#bubbles = bubbles;
    this.#shelf = shelf;
    this.#menu = new CommandMenu(
      (command) => this.#put(`/${command} `),
      (command) => this.#sendNow(`/${command}`),
    );
    byId("attach").append(icon("attach"));
    byId("send").append(icon("send"));
    this.#replying.querySelector("button").append(icon("close"));
    this.#listen();
    this.#field.enterKeyHint = touch.matches ? "enter" : "send";
    this.#changed();
  }

  set commands(commands) {
    this.#menu.commands = commands;
  }

  /** Put back what was being written before the page was reloaded. */
  restore(draft) {
    if (draft && !this.#field.value) this.#put(draft);
  }

  /** Messages sent earlier, the oldest first, for the arrow keys. */
  remember(texts) {
    this.#sent = [];
    for (const text of texts) if (this.#sent[0] !== text) this.#sent.unshift(text);
  }

  focus() {
    this.#field.focus();
  }

  replyTo(message) {
    this.#replyTo = message;
    this.#replying.hidden = message === null;
    if (!message) return;
    this.#replying.querySelector("b").textContent = this.#bubbles.nameOf(message);
    this.#replying.querySelector("span").textContent = snippet(message);
    this.focus();
  }

  #listen() {
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#field.addEventListener("input", () => {
      this.#recalled = -1;
      this.#changed();
      this.#menu.suggest(this.#field.value);
    });
    this.#field.addEventListener("keydown", (event) => this.#key(event));
    this.#field.addEventListener("blur", () => this.#menu.close());
    byId("send").addEventListener("mousedown", (event) => event.preventDefault());
    byId("commands").addEventListener("mousedown", (event) => event.preventDefault());
    byId("commands").addEventListener("click", () => {
      this.focus();
      this.#menu.toggle();
    });
    this.#replying.querySelector("button").addEventListener("click", () => this.replyTo(null));
    byId("attach").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", ({ target }) => {
      this.#sendFiles(target.files);
      target.value = "";
    });
    this.#field.addEventListener("paste", (event) => this.#takeFiles(event, event.clipboardData));
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => this.#takeFiles(event, event.dataTransfer));
  }

  #key(event) {
    if (event.isComposing) return;
    const handled = this.#menu.key(event, this.#field.value) || this.#ownKey(event);
    if (handled) event.preventDefault();
  }

  #ownKey({ key, shiftKey }) {
    if (key === "Enter" && !shiftKey && !touch.matches) this.#submit();
    else if (key === "Escape" && this.#replyTo) this.replyTo(null);
    else if (key === "ArrowUp") return this.#recall(1);
    else if (key === "ArrowDown") return this.#recall(-1);
    else return false;
    return true;
  }

  /** Show what was sent before, one step further back or forth. Starts only from an empty field. */
  #recall(step) {
    const fresh = this.#field.value === "" && step > 0;
    const at = this.#recalled + step;
    if ((!fresh && this.#recalled < 0) || at >= this.#sent.length) return false;
    this.#put(at < 0 ? "" : this.#sent[at]);
    this.#recalled = at;
    return true;
  }

  #submit() {
    const text = this.#field.value.trim();
    if (!text) return;
    if (text.length > this.limits.text) {
      toast(`A message has at most ${this.limits.text} characters. Send longer text as a file.`);
      return;
    }
    this.#put("");
    this.#sendNow(text);
  }

  #sendNow(text) {
    if (this.#sent[0] !== text) this.#sent.unshift(text);
    this.#menu.close();
    this.#outbox.send(text, { replyTo: this.#takeReply() });
    if (/^\/\w*$/.test(this.#field.value)) this.#put("");
  }

  #takeReply() {
    const replyTo = this.#replyTo?.message_id ?? null;
    this.replyTo(null);
    return replyTo;
  }

  #takeFiles(event, { files }) {
    if (!files?.length) return;
    event.preventDefault();
    this.#sendFiles(files);
  }

  #sendFiles(files) {
    for (const file of files) {
      if (file.size > this.limits.file_bytes) {
        toast(`${file.name} is too large: at most ${Math.floor(this.limits.file_bytes / 1024 / 1024)} MB.`);
        continue;
      }
      const caption = this.#field.value.trim();
      this.#put("");
      this.#outbox.send(caption, { file, replyTo: this.#takeReply() });
    }
  }

  #put(text) {
    this.#field.value = text;
    this.#changed();
    this.#menu.close();
  }

  #changed() {
    const { value } = this.#field;
    this.#field.style.setProperty("height", "auto");
    this.#field.style.setProperty("height", `${this.#field.scrollHeight}px`);
    byId("send").disabled = value.trim() === "";
    this.#shelf.put("draft", value);
  }
}

/** The menu of commands: all of them behind the / button, matching ones while a command is being typed. */
class CommandMenu {
  #menu = byId("menu");
  #button = byId("commands");
  #all = [];
  #offered = [];
  #active = 0;
  #choose;
  #send;

  /** `choose(command)` puts a command into the composer, `send(command)` sends it at once. */
  constructor(choose, send) {
    this.#choose = choose;
    this.#send = send;
  }

  set commands(commands) {
    this.#all = commands;
    this.#button.hidden = commands.length === 0;
  }

  get isOpen() {
    return !this.#menu.hidden;
  }

  /** Offer what fits a text that is being typed. */
  suggest(text) {
    const typed = /^\/(\w*)$/.exec(text)?.[1]?.toLowerCase();
    this.#open(typed === undefined ? [] : this.#all.filter(({ command }) => command.startsWith(typed)));
  }

  toggle() {
    this.#open(this.isOpen ? [] : this.#all);
  }

  close() {
    this.#open([]);
  }

  /** Whether a key was meant for the menu. */
  key({ key }, text) {
    if (!this.isOpen) return false;
    if (key === "Escape") this.close();
    else if (key === "ArrowDown") this.#move(1);
    else if (key === "ArrowUp") this.#move(-1);
    else if (key === "Tab" || (key === "Enter" && text !== `/${this.#offered[this.#active].command}`))
      this.#choose(this.#offered[this.#active].command);
    else return false;
    return true;
  }

  #open(commands) {
    this.#offered = commands;
    this.#menu.hidden = commands.length === 0;
    this.#button.setAttribute("aria-expanded", String(this.isOpen));
    this.#menu.replaceChildren(...commands.map((command, at) => this.#row(command, at)));
    this.#activate(0);
  }

  #row({ command, description }, at) {
    const row = el(
      "div",
      { class: "menu-row", role: "option", id: `command-${at}`, onclick: () => this.#choose(command) },
      el("b", {}, `/${command}`),
      el("span", {}, description),
      el("button", { type: "button", class: "icon-button", tabindex: -1, "aria-label": `Send /${command}`, title: "Send at once" }, icon("send")),
    );
    row.lastElementChild.addEventListener("click", (event) => {
      event.stopPropagation();
      this.#send(command);
    });
    // the composer keeps the focus, and a phone its keyboard
    row.addEventListener("mousedown", (event) => event.preventDefault());
    return row;
  }

  #move(by) {
    this.#activate((this.#active + by + this.#offered.length) % this.#offered.length);
  }

  #activate(at) {
    this.#active = at;
    [...this.#menu.children].forEach((row, index) => row.setAttribute("aria-selected", String(index === at)));
    this.#menu.children[at]?.scrollIntoView({ block: "nearest" });
    const field = byId("text");
    if (this.isOpen) field.setAttribute("aria-activedescendant", `command-${at}`);
    else field.removeAttribute("aria-activedescendant");
  }
}

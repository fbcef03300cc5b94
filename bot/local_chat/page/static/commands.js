// The menu of commands: all of them behind the / button, matching ones while a command is being typed.

import { byId, el, icon } from "./dom.js";

export class CommandMenu {
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

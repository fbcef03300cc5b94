// The messages in order, by day, and how far the person has scrolled.

import { byId, el, icon, toast } from "./dom.js";

const NEAR_PX = 60;
const day = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "long" });
const dayWithYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long", year: "numeric" });

export class Timeline {
  #bubbles;
  #connection;
  #messages = new Map();
  #scroller = byId("scroller");
  #log = byId("log");
  #pill = byId("pill");
  #atBottom = true;
  #lastTop = 0;
  #unseen = 0;
  #loadingOlder = false;

  constructor(bubbles, connection) {
    this.#bubbles = bubbles;
    this.#connection = connection;
    this.#scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#pill.addEventListener("click", () => this.toBottom("smooth"));
    const follow = new ResizeObserver(() => this.#atBottom && this.toBottom());
    for (const part of [this.#scroller, this.#log, byId("pending")]) follow.observe(part);
    connection.addEventListener("older", ({ detail }) => this.#prepend(detail));
    connection.addEventListener("offline", () => {
      this.#loadingOlder = false;
    });
  }

  get newest() {
    return Math.max(0, ...this.#messages.keys());
  }

  get all() {
    return [...this.#messages.values()].map(({ message }) => message);
  }

  get isEmpty() {
    return this.#messages.size === 0;
  }

  /** Show the chat as it is now. */
  replaceAll(messages, more) {
    const anchor = this.#anchor();
    this.#messages.clear();
    this.#log.replaceChildren();
    for (const message of messages) this.#append(message);
    byId("older").hidden = !more;
    if (this.#atBottom) this.toBottom();
    else anchor.restore();
  }

  add(message) {
    this.#append(message);
    if (!this.#atBottom && !this.#bubbles.isMine(message)) this.#setUnseen(this.#unseen + 1);
  }

  change(message) {
    const before = this.#messages.get(message.message_id)?.element;
    if (!before) return;
    const element = this.#bubbles.build(message);
    element.classList.toggle("continues", before.classList.contains("continues"));
    before.replaceWith(element);
    this.#bubbles.carryOver(before, element);
    this.#messages.set(message.message_id, { message, element });
  }

  get(messageId) {
    return this.#messages.get(messageId)?.message;
  }

  toBottom(behavior = "instant") {
    this.#atBottom = true;
    this.#setUnseen(0);
    this.#scroller.scrollTo({ top: this.#scroller.scrollHeight, behavior });
  }

  jump(messageId) {
    const element = this.#messages.get(messageId)?.element;
    if (!element) {
      toast("That message is not loaded yet. Scroll up to older messages first.");
      return;
    }
    element.scrollIntoView({ block: "center", behavior: "smooth" });
    element.classList.remove("flash");
    requestAnimationFrame(() => element.classList.add("flash"));
  }

  #append(message) {
    const element = this.#bubbles.build(message);
    const section = this.#section(message.date, "append");
    const previous = section.lastElementChild;
    const mine = element.classList.contains("mine");
    if (previous?.matches(mine ? ".mine" : ".theirs")) element.classList.add("continues");
    section.append(element);
    this.#messages.set(message.message_id, { message, element });
  }

  #prepend({ messages, more }) {
    const before = this.#scroller.scrollHeight - this.#scroller.scrollTop;
    for (const message of messages.reverse()) {
      const element = this.#bubbles.build(message);
      this.#section(message.date, "prepend").firstElementChild.after(element);
      this.#messages.set(message.message_id, { message, element });
    }
    byId("older").hidden = !more;
    this.#scroller.scrollTop = this.#scroller.scrollHeight - before;
    this.#loadingOlder = false;
  }

  #section(date, how) {
    const at = new Date(date * 1000);
    const key = at.toDateString();
    const last = how === "append" ? this.#log.lastElementChild : this.#log.firstElementChild;
    if (last?.dataset.day === key) return last;
    const section = el("section", { class: "day", "data-day": key }, el("h2", {}, el("span", {}, dayText(at))));
    this.#log[how](section);
    return section;
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    // only a person goes up; what grows below or above must not count as that
    if (scrollHeight - scrollTop - clientHeight < NEAR_PX) this.#atBottom = true;
    else if (scrollTop < this.#lastTop) this.#atBottom = false;
    this.#lastTop = scrollTop;
    if (this.#atBottom) this.#setUnseen(0);
    else this.#showPill();
    if (scrollTop < 400 && !byId("older").hidden) this.#loadOlder();
  }

  #loadOlder() {
    if (this.#loadingOlder) return;
    this.#loadingOlder = this.#connection.send({ do: "older", before: Math.min(...this.#messages.keys()) });
  }

  /** Remember which message is at the top of the screen, to put it there again. */
  #anchor() {
    const top = this.#scroller.getBoundingClientRect().top;
    const first = [...this.#log.querySelectorAll(".message")].find((node) => node.getBoundingClientRect().bottom > top);
    const offset = first ? first.getBoundingClientRect().top : 0;
    return {
      restore: () => {
        const again = this.#messages.get(Number(first?.dataset.id))?.element;
        if (again) this.#scroller.scrollTop += again.getBoundingClientRect().top - offset;
      },
    };
  }

  #setUnseen(count) {
    this.#unseen = count;
    this.#showPill();
  }

  #showPill() {
    this.#pill.hidden = this.#atBottom;
    const words = this.#unseen === 0 ? "" : this.#unseen === 1 ? "1 new message" : `${this.#unseen} new messages`;
    this.#pill.replaceChildren(icon("down"), words);
    this.#pill.setAttribute("aria-label", words || "To the newest message");
  }
}

function dayText(at) {
  const now = new Date();
  if (at.toDateString() === now.toDateString()) return "Today";
  if (at.toDateString() === new Date(now - 86_400_000).toDateString()) return "Yesterday";
  return (at.getFullYear() === now.getFullYear() ? day : dayWithYear).format(at);
}

// Jobs beside the GPUs, where there is room: those that run with their progress, and those that start next.

import { byId, el } from "./dom.js";

export class Jobs {
  #section = byId("jobs");
  #shown = "";
  #open;

  /** `open(job)` shows a job in the chat. */
  constructor(open) {
    this.#open = open;
  }

  show(status) {
    const jobs = status?.jobs ?? [];
    const shown = JSON.stringify(jobs);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const focused = document.activeElement?.dataset?.job;
    this.#section.hidden = jobs.length === 0;
    this.#section.replaceChildren(
      ...this.#part("Running", jobs.filter(({ runs }) => runs)),
      ...this.#part("Next", jobs.filter(({ runs }) => !runs)),
    );
    if (focused) this.#section.querySelector(`[data-job="${focused}"]`)?.focus();
  }

  #part(title, jobs) {
    return jobs.length ? [el("h2", {}, title), ...jobs.map((job) => this.#row(job))] : [];
  }

  #row({ id, name, words, percent }) {
    const fill = el("i");
    fill.style.setProperty("width", `${Math.min(100, Math.max(0, percent ?? 0))}%`);
    return el(
      "button",
      { type: "button", class: "job", "data-job": id, onclick: () => this.#open(id) },
      el("span", { class: "job-name" }, el("b", {}, `#${id}`), ` ${name}`),
      percent === null ? null : el("span", { class: "level progress" }, el("span", { class: "track" }, fill)),
      words ? el("span", { class: "job-words" }, words) : null,
    );
  }
}

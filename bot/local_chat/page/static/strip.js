// The box at a glance: one card per GPU. An unknown value is shown as a dash.

import { byId, el } from "./dom.js";

const UNKNOWN = "–";
const MANY = 4;
const QUIET = new Set(["free", "busy"]);

export class Strip {
  #cards = new Map();
  #held = el("p", { class: "held", hidden: true });
  #list = el("div", { class: "gpus" });

  #open;

  /** `open(job)` shows a job in the chat. */
  constructor(open) {
    this.#open = open;
    byId("strip").append(this.#list, this.#held);
  }

  show(status) {
    byId("runner-down").hidden = status?.runner_up !== false;
    byId("simulated").hidden = !status?.simulated;
    this.#held.hidden = !status?.held;
    this.#held.textContent = (status?.held ?? "").replace(/^./, (letter) => letter.toUpperCase());
    const gpus = status?.gpus ?? [];
    const present = new Set(gpus.map(({ uuid }) => uuid));
    for (const uuid of this.#cards.keys()) if (!present.has(uuid)) this.#cards.delete(uuid);
    this.#list.classList.toggle("many", gpus.length > MANY);
    for (const gpu of gpus) {
      if (!this.#cards.has(gpu.uuid)) this.#cards.set(gpu.uuid, new Card(this.#open));
      this.#cards.get(gpu.uuid).show(gpu, status.progress ?? {});
    }
    const cards = gpus.map(({ uuid }) => this.#cards.get(uuid).element);
    const same = cards.length === this.#list.children.length && cards.every((card, at) => card === this.#list.children[at]);
    if (!same) this.#list.replaceChildren(...cards);
  }
}

class Card {
  #index = el("b", { class: "gpu-index" });
  #what = el("span", { class: "gpu-what" });
  #name = el("p", { class: "gpu-name" });
  #use = new Bar("use");
  #memory = new Bar("memory");
  #warmth = el("span", { class: "gpu-warmth" });
  #progress = new Bar("progress");

  #job = null;

  constructor(open) {
    const tapped = ({ type, key }) => this.#job && (type === "click" || key === "Enter") && open(this.#job);
    this.element = el(
      "div",
      { class: "gpu", onclick: tapped, onkeydown: tapped },
      el("div", { class: "gpu-head" }, this.#index, this.#what, this.#warmth),
      this.#name,
      this.#use.element,
      this.#memory.element,
      this.#progress.element,
    );
  }

  show(gpu, progress) {
    const far = (gpu.jobs ?? []).map((job) => progress[job]).find((known) => known) ?? null;
    this.#progress.element.hidden = far === null;
    if (far) this.#progress.show(far.percent ?? null, far.words);
    this.#job = gpu.jobs?.[0] ?? null;
    this.element.setAttribute("role", this.#job ? "button" : "group");
    this.element.tabIndex = this.#job ? 0 : -1;
    const use = gpu.utilization ?? null;
    const used = gpu.memory_used_mib ?? null;
    const total = gpu.memory_total_mib ?? null;
    const memory = `${used === null ? UNKNOWN : gib(used)}/${total === null ? UNKNOWN : Math.round(total / 1024)} GiB`;
    this.#index.textContent = gpu.index ?? UNKNOWN;
    this.#name.textContent = gpu.name ?? "";
    this.#what.textContent = occupation(gpu);
    this.element.title = gpu.detail ?? gpu.name ?? "";
    this.element.dataset.state = gpu.state ?? "unknown";
    this.#use.show(use, use === null ? UNKNOWN : `${Math.round(use)} %`);
    this.#memory.show(used === null || !total ? null : (used / total) * 100, memory);
    this.#warmth.textContent = `${number(gpu.temperature_c)} °C · ${number(gpu.power_w)} W`;
    this.element.setAttribute(
      "aria-label",
      `GPU ${gpu.index}: ${occupation(gpu)}, ${this.#use.text} used, memory ${memory}, ${this.#warmth.textContent}${far ? `, ${far.words}` : ""}`,
    );
  }
}

class Bar {
  #fill = el("i");
  #label = el("span", { class: "bar-label" });

  constructor(kind) {
    this.element = el("div", { class: `level ${kind}`, "aria-hidden": "true" }, el("span", { class: "track" }, this.#fill), this.#label);
  }

  get text() {
    return this.#label.textContent;
  }

  show(percent, text) {
    this.element.classList.toggle("unknown", percent === null);
    this.#fill.style.setProperty("width", `${Math.min(100, Math.max(0, percent ?? 0))}%`);
    this.#label.textContent = text;
  }
}

function occupation({ jobs, state }) {
  if (jobs?.length) return jobs.map((job) => `#${job}`).join(" ") + (state && !QUIET.has(state) ? ` · ${state}` : "");
  return state ?? "unknown";
}

const number = (value) => (Number.isFinite(value) ? Math.round(value) : UNKNOWN);
const gib = (mib) => (mib / 1024).toFixed(mib < 102_400 ? 1 : 0);

/** Running and waiting jobs in a few words. */
export function countsText(status) {
  if (!status) return "status unknown";
  return `${status.running ?? UNKNOWN} running · ${status.queued ?? UNKNOWN} queued`;
}

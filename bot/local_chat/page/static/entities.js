// Text with entities as nodes. Offsets count UTF-16 units, as JavaScript's own strings do.

import { el, icon } from "./dom.js";

const PLAIN = { bold: "strong", italic: "em", underline: "u", strikethrough: "s", code: "code", blockquote: "blockquote" };
const BLOCK = /^pre$|blockquote$/;
const NAMED = new Set(["mention", "text_mention", "hashtag", "cashtag"]);

/** The text as a fragment; `onCommand` is called with a command that was tapped. */
export function richText(text, entities, onCommand) {
  const sorted = [...(entities ?? [])].sort((a, b) => a.offset - b.offset || b.length - a.length);
  const fragment = document.createDocumentFragment();
  fragment.append(...nodes(text, sorted, 0, text.length, onCommand));
  return fragment;
}

function nodes(text, entities, start, end, onCommand) {
  const made = [];
  let at = start;
  let next = 0;
  while (next < entities.length) {
    const entity = entities[next];
    const close = Math.min(entity.offset + entity.length, end);
    let after = next + 1;
    while (after < entities.length && entities[after].offset < close) after += 1;
    if (entity.offset > at) made.push(text.slice(at, entity.offset));
    const inner = nodes(text, entities.slice(next + 1, after), entity.offset, close, onCommand);
    made.push(wrapped(entity, text.slice(entity.offset, close), inner, onCommand));
    at = close;
    next = after;
    // a line break after a block is its end, not an empty line
    if (BLOCK.test(entity.type) && text[at] === "\n") at += 1;
  }
  if (at < end) made.push(text.slice(at, end));
  return made;
}

function wrapped(entity, text, inner, onCommand) {
  const { type } = entity;
  if (type in PLAIN) return el(PLAIN[type], {}, ...inner);
  if (NAMED.has(type)) return el("span", { class: "named" }, ...inner);
  if (type === "pre") return preformatted(text, entity.language, inner);
  if (type === "expandable_blockquote") return expandable(inner);
  if (type === "date_time") return localTime(entity, inner);
  if (type === "url") return link(text, inner);
  if (type === "text_link") return link(entity.url, inner);
  if (type === "bot_command")
    return el("button", { type: "button", class: "command", onclick: () => onCommand(text) }, ...inner);
  return el("span", {}, ...inner);
}

/** A time in the reader's own zone and language; the format's letters are those of Telegram. */
function localTime({ unix_time: seconds, date_time_format: shape }, inner) {
  const at = new Date(seconds * 1000);
  const parts = {};
  if (/w/.test(shape)) parts.weekday = "short";
  if (/d/i.test(shape)) Object.assign(parts, { year: "numeric", month: shape.includes("D") ? "long" : "2-digit", day: "2-digit" });
  if (/t/i.test(shape)) Object.assign(parts, { hour: "numeric", minute: "2-digit" }, shape.includes("T") ? { second: "2-digit" } : {});
  const words = Object.keys(parts).length ? [at.toLocaleString(undefined, parts)] : inner;
  return el("time", { datetime: at.toISOString(), title: at.toLocaleString() }, ...words);
}

/** The address if it is http or https, else null: the page never follows javascript:, data: and the like. */
export function webAddress(address) {
  try {
    const url = new URL(address);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function link(address, inner) {
  const href = webAddress(address);
  if (!href) return el("span", { class: "named" }, ...inner);
  return el("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...inner);
}

function preformatted(text, language, inner) {
  const copy = el("button", { type: "button", class: "copy", "aria-label": "Copy", title: "Copy" }, icon("copy"));
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.replaceChildren(icon("check"));
    setTimeout(() => copy.replaceChildren(icon("copy")), 1500);
  });
  const code = el("pre", { tabindex: 0 }, el("code", {}, ...inner));
  return el("div", { class: "pre" }, language ? el("span", { class: "language" }, language) : null, copy, code);
}

function expandable(inner) {
  const quote = el("blockquote", { class: "expandable" }, el("div", { class: "quoted" }, ...inner));
  const more = el("button", { type: "button", class: "more", "aria-label": "Show all", "aria-expanded": "false" }, icon("down"));
  more.addEventListener("click", () => setExpanded(quote, !quote.classList.contains("open")));
  quote.append(more);
  return quote;
}

export function setExpanded(quote, open) {
  quote.classList.toggle("open", open);
  const more = quote.querySelector(".more");
  more.setAttribute("aria-expanded", String(open));
  more.setAttribute("aria-label", open ? "Show less" : "Show all");
}

// One message as an element: quote, picture or file, text, marks, buttons, reactions.

import { el, enlarge, icon, openReader, toast } from "./dom.js";
import { richText, setExpanded } from "./entities.js";
import { sizeText } from "./files.js";

const READABLE = /\.(log|log\.gz|txt|csv)$/;
const TALLEST_PX = 340;
const ENOUGH_PX = 56;
const FURTHEST_PX = 80;
const SCROLLS_ITSELF = "pre, .keyboard";
const clock = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit" });

export class Bubbles {
  #files;
  #keyboards;
  #on;
  me = null;
  bot = null;

  /** `on` has command(text), reply(message) and jump(messageId). */
  constructor(files, keyboards, on) {
    this.#files = files;
    this.#keyboards = keyboards;
    this.#on = on;
  }

  isMine(message) {
    return message.from?.id === this.me?.id;
  }

  build(message) {
    const mine = this.isMine(message);
    const article = el("article", { class: `message ${mine ? "mine" : "theirs"}`, "data-id": message.message_id });
    article.append(
      el("div", { class: "stack" }, this.#bubble(message), this.#keyboards.build(message), reactions(message)),
      this.#replyButton(message),
    );
    return article;
  }

  /** Keep what a person opened or scrolled inside a message when the message changes. */
  carryOver(before, after) {
    const fresh = { quotes: after.querySelectorAll(".expandable"), code: after.querySelectorAll("pre") };
    before.querySelectorAll(".expandable").forEach((quote, at) => {
      if (quote.classList.contains("open") && fresh.quotes[at]) setExpanded(fresh.quotes[at], true);
    });
    before.querySelectorAll("pre").forEach((code, at) => {
      if (fresh.code[at]) fresh.code[at].scrollLeft = code.scrollLeft;
    });
  }

  nameOf(message) {
    return this.isMine(message) ? "You" : (message.from?.first_name ?? "");
  }

  #bubble(message) {
    const text = message.text ?? message.caption ?? "";
    const entities = message.entities ?? message.caption_entities;
    const body = el("div", { class: "text" }, richText(text, entities, this.#on.command), marks(message));
    return el("div", { class: "bubble" }, this.#quote(message), this.#photo(message), this.#document(message), body);
  }

  #quote({ reply_to_message: replied }) {
    if (!replied) return null;
    const jump = () => this.#on.jump(replied.message_id);
    return el(
      "button",
      { type: "button", class: "quote", onclick: jump, "aria-label": `Reply to: ${snippet(replied)}` },
      el("b", {}, this.nameOf(replied)),
      el("span", {}, snippet(replied)),
    );
  }

  #photo({ photo }) {
    if (!photo) return null;
    const { file_id: fileId, width, height } = photo[photo.length - 1];
    const image = el("img", { alt: "Picture" });
    this.#files.show(image, fileId);
    const open = () => image.src && enlarge(image.src);
    const frame = el("button", { type: "button", class: "photo", "aria-label": "Enlarge the picture", onclick: open }, image);
    // the room is there before the picture is, so that nothing jumps
    frame.style.setProperty("aspect-ratio", `${width} / ${height}`);
    frame.style.setProperty("width", `${Math.min(width, (TALLEST_PX * width) / height)}px`);
    return frame;
  }

  #document({ document: file }) {
    if (!file) return null;
    const save = () => this.#files.save(file.file_id, file.file_name).catch((error) => toast(error.message));
    const download = el(
      "button",
      { type: "button", class: "document", onclick: save, "aria-label": `Download ${file.file_name}` },
      el("span", { class: "document-icon" }, icon("download")),
      el("span", { class: "document-text" }, el("b", {}, file.file_name), el("small", {}, sizeText(file.file_size))),
    );
    if (!READABLE.test(file.file_name ?? "")) return download;
    const read = () => this.#files.read(file.file_id, file.file_name).then(({ text, whole }) => openReader(file.file_name, text, whole)).catch((error) => toast(error.message));
    return el("div", {}, download, el("button", { type: "button", class: "read", onclick: read }, "Read it here"));
  }

  #replyButton(message) {
    const reply = () => this.#on.reply(message);
    return el("button", { type: "button", class: "reply-button", "aria-label": "Reply", title: "Reply", onclick: reply }, icon("reply"));
  }
}

function marks({ date, edit_date: edited, silent }) {
  const at = new Date(date * 1000);
  return el(
    "span",
    { class: "marks" },
    silent ? icon("muted", "Sent silently") : null,
    edited ? el("span", {}, "edited") : null,
    el("time", { datetime: at.toISOString(), title: at.toLocaleString() }, clock.format(at)),
  );
}

function reactions({ reactions: emojis }) {
  if (!emojis) return null;
  return el("div", { class: "reactions", "aria-label": "Reactions" }, ...emojis.map((emoji) => el("span", {}, emoji)));
}

/** A message in one line. */
export function snippet({ text, caption, document: file, photo }) {
  const words = text ?? caption ?? (file ? file.file_name : photo ? "Picture" : "Message");
  return words.replace(/\s+/g, " ").slice(0, 140);
}

/** Reply to a message that is drawn to the left, as on a phone. */
export function replyBySwipe(log, reply) {
  let from = null;

  log.addEventListener("touchstart", ({ touches, target }) => {
    const message = target.closest(".message");
    const usable = message && touches.length === 1 && !target.closest(SCROLLS_ITSELF);
    from = usable ? { message, x: touches[0].clientX, y: touches[0].clientY, moved: 0 } : null;
  }, { passive: true });

  log.addEventListener("touchmove", ({ touches }) => {
    if (!from) return;
    const x = touches[0].clientX - from.x;
    const y = touches[0].clientY - from.y;
    if (from.moved === 0 && Math.abs(y) > Math.abs(x)) {
      from = null;
      return;
    }
    from.moved = Math.min(0, Math.max(x, -FURTHEST_PX));
    from.message.style.setProperty("transform", `translateX(${from.moved}px)`);
  }, { passive: true });

  const end = (event) => {
    if (!from) return;
    from.message.style.removeProperty("transform");
    if (event.type === "touchend" && from.moved <= -ENOUGH_PX) reply(Number(from.message.dataset.id));
    from = null;
  };
  log.addEventListener("touchend", end);
  log.addEventListener("touchcancel", end);
}

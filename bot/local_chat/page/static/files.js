// Files travel with the connection's key in a header and are shown from memory; an address never carries it.

const GENERIC = "application/octet-stream";
const UNAUTHORIZED = 401;
const MOST_READ = 4 * 1024 * 1024;

export class Files {
  #connection;
  #pictures = new Map();
  #near = new IntersectionObserver((entries) => this.#appear(entries), { rootMargin: "600px" });

  constructor(connection) {
    this.#connection = connection;
  }

  get #headers() {
    return { "X-Nightshift-Key": this.#connection.fileKey };
  }

  /** Put a picture into an <img> when it comes near the screen. */
  show(image, fileId) {
    image.dataset.file = fileId;
    this.#near.observe(image);
  }

  async save(fileId, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await this.#fetch(fileId, GENERIC));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  /** The text of a file, packed or not, and whether it is all of it: of a huge one only the end is shown. */
  async read(fileId, name) {
    const packed = await this.#fetch(fileId, "text/plain");
    const stream = packed.stream();
    const bytes = await new Response(name.endsWith(".gz") ? stream.pipeThrough(new DecompressionStream("gzip")) : stream).blob();
    const text = await bytes.slice(Math.max(0, bytes.size - MOST_READ)).text();
    return { text, whole: bytes.size <= MOST_READ };
  }

  /** Resolves to null, or to the reason why the server refuses the file. Rejects if there is no server. */
  async send({ id, text, replyTo, file }) {
    const form = new FormData();
    form.set("id", id);
    form.set("caption", text);
    form.set("reply_to", replyTo ?? "");
    form.set("file", file, file.name);
    const answer = await fetch("/file", { method: "POST", headers: this.#headers, body: form });
    if (answer.ok) return null;
    if (answer.status === UNAUTHORIZED) throw new Error("the connection was lost");
    return answer.status === 413 ? "The file is too large." : answer.text();
  }

  async #fetch(fileId, type) {
    const answer = await fetch(`/file/${encodeURIComponent(fileId)}`, { headers: this.#headers });
    if (!answer.ok) throw new Error(await answer.text());
    return new Blob([await answer.arrayBuffer()], { type });
  }

  #appear(entries) {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      this.#near.unobserve(target);
      this.#load(target);
    }
  }

  async #load(image) {
    const fileId = image.dataset.file;
    if (!this.#pictures.has(fileId)) {
      // only pixels ever come as pictures (PNG, GIF, JPEG), and browsers tell these apart by themselves
      this.#pictures.set(fileId, this.#fetch(fileId, "image/png").then((blob) => URL.createObjectURL(blob)));
    }
    try {
      image.src = await this.#pictures.get(fileId);
    } catch {
      this.#pictures.delete(fileId);
      image.alt = "This picture is no longer available";
      image.classList.add("gone");
    }
  }
}

export function sizeText(bytes) {
  const units = ["B", "KB", "MB", "GB"];
  let size = bytes;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit && size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

// Page and server prove to each other that they know the link's secret; see proof.py. It is never sent, and kept
// nowhere: what a reload needs is a key that no script can read out, and that is good for this server's session only.

const utf8 = new TextEncoder();
const STORE = "keys";
const KEPT = "session";

export class Identity {
  #secret;
  #kept;

  constructor(secret, kept) {
    this.#secret = secret;
    this.#kept = kept;
  }

  /** From the link, or from before the page was reloaded; null without either. */
  static async find() {
    const secret = location.hash.slice(1);
    if (secret) {
      history.replaceState(null, "", location.pathname);
      return new Identity(await hmacKey(utf8.encode(secret)), null);
    }
    const kept = await database("readonly", (store) => store.get(KEPT)).catch(() => null);
    return kept ? new Identity(null, kept) : null;
  }

  /** What to answer to a server that has proven itself; null for any other. */
  async meet(nonce, { nonce: theirs, session, proof }) {
    const key = await this.#key(session);
    const said = `${location.port || 80} ${nonce} ${theirs}`;
    if (!key || !(await crypto.subtle.verify("HMAC", key, bytes(proof), utf8.encode(`server ${said}`)))) return null;
    await this.#keep({ session, key });
    return { proof: hex(await sign(key, `page ${said}`)), fileKey: hex(await sign(key, `files ${said}`)) };
  }

  async #key(session) {
    if (this.#kept?.session === session) return this.#kept.key;
    return this.#secret && hmacKey(await sign(this.#secret, `key ${session}`));
  }

  async #keep(kept) {
    if (this.#kept?.session === kept.session) return;
    this.#kept = kept;
    await database("readwrite", (store) => store.put(kept, KEPT)).catch(() => {}); // then a reload needs the link
  }
}

export function freshNonce() {
  return hex(crypto.getRandomValues(new Uint8Array(16)));
}

export function bytes(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const sign = (key, text) => crypto.subtle.sign("HMAC", key, utf8.encode(text));
const hmacKey = (raw) => crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign", "verify"]);

function database(mode, act) {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("nightshift");
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onerror = reject;
    opening.onsuccess = () => {
      const transaction = opening.result.transaction(STORE, mode);
      const request = act(transaction.objectStore(STORE));
      transaction.onabort = reject;
      transaction.oncomplete = () => {
        opening.result.close();
        resolve(request.result);
      };
    };
  });
}

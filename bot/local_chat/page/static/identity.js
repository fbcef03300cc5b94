// Page and server prove to each other that they know the link's secret; see security.py. It is never sent, and kept
// nowhere: what a reload needs is a key that no script can read out, and that is good for this server's session only.

const utf8 = new TextEncoder();
const STORE = "keys";
const SESSION = "session";

export class Identity {
  #secret;
  #session;

  constructor(secret, session) {
    this.#secret = secret;
    this.#session = session;
  }

  /** From the link, or from before the page was reloaded; null without either. */
  static async find() {
    const secret = location.hash.slice(1);
    if (secret) {
      history.replaceState(null, "", location.pathname);
      return new Identity(await hmacKey(utf8.encode(secret)), null);
    }
    const session = await database("readonly", (store) => store.get(SESSION)).catch(() => null);
    return session ? new Identity(null, session) : null;
  }

  /** What to answer to a server that has proven itself; null for any other. */
  async meet(nonce, { nonce: theirs, session, proof }) {
    const key = await this.#key(session);
    const meeting = `${location.port || 80} ${nonce} ${theirs}`;
    if (!key || !(await crypto.subtle.verify("HMAC", key, bytes(proof), utf8.encode(`server ${meeting}`)))) return null;
    await this.#keep({ session, key });
    return { proof: hex(await sign(key, `page ${meeting}`)), fileKey: hex(await sign(key, `files ${meeting}`)) };
  }

  async #key(session) {
    if (this.#session?.session === session) return this.#session.key;
    return this.#secret && hmacKey(await sign(this.#secret, `key ${session}`));
  }

  async #keep(session) {
    if (this.#session?.session === session.session) return;
    this.#session = session;
    await database("readwrite", (store) => store.put(session, SESSION)).catch(() => {}); // then a reload needs the link
  }
}

export const freshNonce = () => hex(crypto.getRandomValues(new Uint8Array(16)));
export const bytes = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
export const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
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

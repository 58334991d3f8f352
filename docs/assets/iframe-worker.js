// Search needs a worker, which browsers refuse to pages that are read from a folder (file://).
// There a frame does its work: a script in it sees the messages that a worker would.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      const here = this;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        here.dispatchEvent(event);
        if (here.onmessage) here.onmessage(event);
      };
      const load = (address) => new Promise((done, fail) => {
        const script = inside.document.createElement("script");
        script.src = new URL(address, new URL(url, location)).href;
        script.onload = done;
        script.onerror = fail;
        inside.document.body.appendChild(script);
      });
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve());
      this.ready = load(new URL(url, location).href);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
